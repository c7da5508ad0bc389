// Package layers holds the building blocks that architectures are made of:
// sharded linear layers, attention, MLP and mixture of experts, written once
// against kernels.Backend and the Reducer that a rank supplies.
//
// A layer declares its sharding where it loads its weights: column-parallel
// weights (q, k, v, gate, up) take rows of the stored matrix, row-parallel ones
// (o, down) take columns and yield partial sums, which the caller reduces. A
// rank whose part is empty contributes zeros.
//
// Layers hold no state of a request. They belong to one rank's engine thread;
// their calls enqueue.
package layers
