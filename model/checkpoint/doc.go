// Package checkpoint reads safetensors checkpoints: one file, or shards with an
// index.
//
// Files maps every shard once and owns the mappings and every copy made from
// them; tensors are views that die with it. A Loader takes one rank's slices:
// slices of rows are used in place, slices of columns are read with pread into
// anonymous memory, because neighbouring ranks' columns share pages and a rank
// that used them in place would touch several times its own share. Where ranks
// share a Window each reads a part of the rows for all. The loader records every
// slice in a Plan, collects every problem, and reports them all when it finishes,
// so that code which builds layers needs no error paths.
//
// Nothing in a file is trusted: a header is bounded by the size of its file
// before it is parsed, and every offset, shape and type is checked before
// memory is reserved for it. A Files may be shared by the loaders of several
// goroutines; a Loader belongs to one.
package checkpoint
