// Package llama builds the decoders that Llama began: Llama itself, Mistral,
// Qwen2, Qwen3 and Qwen3-MoE. They differ in biases, norms, windows and the
// feed-forward half, all of which model.Config says.
package llama
