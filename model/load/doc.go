// Package load opens checkpoints as models: it picks the architecture that a
// configuration names and runs its loading code, for real or dry.
package load
