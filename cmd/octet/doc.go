// Command octet is the one binary: supervisor and coordinator, rank process,
// client and benchmarks.
//
// It is the only place that reads flags, the environment and configuration
// files. Each command turns them into the Config of the packages it uses.
// Errors leave through exitCode as one sentence on standard error.
package main
