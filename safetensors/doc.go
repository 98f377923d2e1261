// Package safetensors reads and writes the safetensors file format, whose
// tensors become fuel Storages. Import it to load weights: nothing is copied
// where the file's layout allows it, and a report says where it did not.
//
//	f, err := safetensors.Open("model.safetensors", nil)
//	if err != nil { … }
//	defer f.Close()
//	for info := range f.All() {
//		s, err := f.Tensor(info.Name)
//		…
//		model[info.Name] = s // to be closed when the model goes
//	}
//
// [Open] maps a file, [Read] and [FromBytes] load one, [Wrap] takes one that is
// in memory, [Parse] reads only its table of contents, [Write] and [WriteFile]
// make one. There are no build tags.
//
// # The format, and how strict this package is
//
// A file is eight bytes with the length of the header (little-endian, at most
// [MaxHeader]), the header in JSON, and the data. The header has one entry for
// each tensor, with its dtype, shape and data_offsets, and may have one named
// __metadata__ that maps strings to strings. Numbers in the data are
// little-endian; on a big-endian host this package swaps them.
//
// A reader here refuses, with the offset in the file and the tensor's name:
//   - a header that is not valid UTF-8, does not begin with '{' or is followed
//     by anything but spaces
//   - JSON that is not valid, lone surrogates included, or nests more than 127
//     deep
//   - a key that comes twice, anywhere: for tensors as *[DuplicateTensorError]
//   - metadata other than strings (null stands for none)
//   - a dtype that is not in the format
//   - dimensions and offsets that are not plain non-negative integers, and
//     products of them that overflow
//   - elements that do not fill whole bytes (an odd number of F4)
//   - a byte length that is not the shape's
//   - bytes of the data that belong to no tensor or to two
//   - a file that is shorter or longer than its header says
//
// An entry's keys other than the three are skipped if they are valid JSON.
// Tensors without elements and scalars of shape [] are tensors like any other,
// and a header with none is a file too; zero bytes are not.
//
// In three points the reference implementation, the Rust crate, takes more
// (version 0.8.0): it allows white space of all kinds around the header, of a
// key that comes twice it mostly keeps the last, and it reads an entry or a
// dtype from other JSON than the format describes. What this package takes,
// the crate takes too.
package safetensors
