// Package layers holds the building blocks that architectures are made of:
// sharded linear layers, attention, MLP and mixture of experts, written once
// against kernels.Backend and the Reducer that a rank supplies.
package layers
