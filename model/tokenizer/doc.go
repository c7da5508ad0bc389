// Package tokenizer turns text into token ids and back, for the tokenizers that
// published checkpoints carry.
//
// Two file forms are read. tokenizer.json of the Hugging Face tokenizers library:
// byte-level BPE (GPT-2, Llama-3, Qwen2/3, DeepSeek-V3, Mistral Tekken) and BPE
// over characters with byte fallback (Llama-2, Mistral). tiktoken.model, a list
// of base64 tokens and ranks, with its special tokens in tokenizer_config.json
// (Kimi). What a file asks for and this package does not do is refused by Load
// with a *FormatError that names the field; nothing is approximated.
//
// The way of a text through Encode, every part optional:
//
//	added tokens -> normalizer -> splits -> BPE -> begin/end tokens
//	addedTokens     normalize     splitter  model   postProcessor
//
// and back: token texts -> decoder stages -> text. Decode is Stream run to its end, so
// that streamed text and decoded text cannot differ.
//
// The split patterns of published tokenizers are regular expressions with
// look-ahead and class intersection, which package regexp has not. They are
// recognised by their text and matched by hand-written splitters; the tests
// compare each with a backtracking regexp engine. Character classes are those
// of package unicode.
//
// Text that is not valid UTF-8 is encoded as if every maximal invalid part were
// U+FFFD. Ids that name no token decode to nothing.
//
// A Tokenizer is safe for concurrent use. A Stream and a Stopper belong to one
// request each.
package tokenizer
