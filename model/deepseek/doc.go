// Package deepseek builds decoders with multi-head latent attention and
// sigmoid-routed experts: DeepSeek-V3, Kimi-K2 and the language model of
// Kimi-K2.5. They differ in numbers, names and quantisation, all of which
// model.Config says. The layers of multi-token prediction are not loaded.
package deepseek
