// Package synth writes synthetic checkpoints: Llama-shaped, of any size, with
// random bf16 weights. Benchmarks need weights that do not fit the caches and
// load tests need gigabytes; nobody should download those.
package synth
