// Package kernels says what a device can compute: dtypes, views of device
// memory, weight formats and the Backend interface that the model layers are
// written against.
//
// Calls on a Backend enqueue: they return at once, run in order, and report
// their first error from Sync. That is the contract which lets one layer
// implementation run eagerly on a CPU and be captured as a CUDA graph on a GPU.
// A Backend belongs to one rank and is used from that rank's engine thread only.
//
// Row results are invariant: what a row yields does not depend on how many rows
// run with it, on page boundaries or on prefix hits. Reductions are split by
// shape and by absolute position, never by the number of rows.
package kernels
