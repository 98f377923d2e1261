// Writes golden/rust-sub-byte.safetensors with the Rust crate safetensors, the
// only one that writes F6_E2M3 and F6_E3M2. The file that is committed comes
// from safetensors 0.8.0: make this the main.rs of a program that depends on
// it, and name the file to write as its argument.

use safetensors::tensor::{serialize_to_file, Dtype, TensorView};

fn main() {
    let path = std::env::args().nth(1).expect("a file to write");
    // Eight elements of six bits, 1 to 8, low bits first.
    let six: Vec<u8> = vec![0x81, 0x30, 0x10, 0x85, 0x71, 0x20];
    let four: Vec<u8> = vec![0x21, 0x43, 0x65];
    let tensors = [
        ("e2m3", TensorView::new(Dtype::F6_E2M3, vec![2, 4], &six).unwrap()),
        ("e3m2", TensorView::new(Dtype::F6_E3M2, vec![8], &six).unwrap()),
        ("four", TensorView::new(Dtype::F4, vec![3, 2], &four).unwrap()),
    ];
    serialize_to_file(tensors, None, std::path::Path::new(&path)).unwrap();
}
