//! The work of fuel's benchmarks as the crate fuel-memory does it, printed in Go's format under the same names with
//! impl=fuel_memory.
//!
//!     peer MILLISECONDS GOMAXPROCS
//!
//! measures each for about that time, or once for 0. GOMAXPROCS is what the names of Go's end in; nothing here runs on more
//! than one core.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fuel_ir::DType;
use fuel_memory::{BackendStorage, alloc_cpu_zeroed, from_slice_cpu};

/// Sizes in bytes: of bench_test.go.
const SIZES: [usize; 10] = [
    64,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
];

/// How long to measure, and what the names end in.
struct Bench {
    time: Duration,
    procs: String,
}

impl Bench {
    /// Runs op once, then about as often as the time asks for, as testing.B does, and prints what one run took.
    fn run(&self, name: &str, more: &str, mut op: impl FnMut()) {
        let mut count = 1u64;
        op();
        let took = loop {
            let begin = Instant::now();
            for _ in 0..count {
                op();
            }
            let took = begin.elapsed();
            if took >= self.time {
                break took;
            }
            let per = took.as_nanos().max(1) as f64 / count as f64;
            let next = 1.2 * self.time.as_nanos() as f64 / per;
            count = (next as u64).clamp(count + 1, 100 * count);
        };
        println!(
            "Benchmark{name}/impl=fuel_memory/{more}{}\t{count}\t{:.4} ns/op",
            self.procs,
            took.as_nanos() as f64 / count as f64
        );
    }
}

/// The bytes of a Storage on the CPU, which all are here.
#[allow(unreachable_patterns)] // the crate's features decide which variants there are
fn cpu(s: &mut BackendStorage) -> &mut fuel_cpu_backend::CpuStorageBytes {
    match s {
        BackendStorage::Cpu(c) => c,
        _ => unreachable!(),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, milliseconds, procs] = args.as_slice() else {
        eprintln!("usage: peer MILLISECONDS GOMAXPROCS");
        std::process::exit(2);
    };
    let b = Bench {
        time: Duration::from_millis(milliseconds.parse().expect("MILLISECONDS")),
        procs: match procs.as_str() {
            "1" => String::new(),
            n => format!("-{n}"),
        },
    };
    println!("pkg: github.com/go-fuel/fuel");
    for n in SIZES {
        b.run("AllocTouchClose", &format!("size={n}"), || {
            let mut s = alloc_cpu_zeroed(DType::U8, n).expect("alloc_cpu_zeroed");
            for page in cpu(&mut s.inner).bytes_mut().chunks_mut(4096) {
                page[0] = 1;
            }
            black_box(&mut s);
        });
    }
    for n in SIZES {
        let v = vec![1f32; n / 4];
        b.run("FromSliceClose", &format!("size={n}"), || {
            black_box(from_slice_cpu(black_box(&v)));
        });
    }
    // Its Storage has no Clone; what it holds has: the same bytes under one more count.
    let mut s = alloc_cpu_zeroed(DType::U8, 4096).expect("alloc_cpu_zeroed");
    let bytes = cpu(&mut s.inner);
    b.run("CloneClose", "memory=owned", || {
        black_box(bytes.clone());
    });
}
