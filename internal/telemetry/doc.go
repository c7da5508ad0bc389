// Package telemetry watches the health of GPUs: temperature, clocks and why they are
// held down, memory, PCIe link and replays, ECC and XID errors.
//
// The NVIDIA management library can hang where a GPU does. So it is never called in a
// process that serves: Report runs in a process of its own and prints a line an
// interval, and a Watch owns that process in the one that serves. A reporter that is
// late is killed and started again; meanwhile what it last said is marked as old.
//
// Builds without cgo or the tag cuda have no reporter; the rest works everywhere.
package telemetry
