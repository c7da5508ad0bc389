// Package tokenizer turns text into token ids and back, and conversations into
// prompts, for the tokenizers that published checkpoints carry.
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
//	added tokens -> normalizer -> splits -> BPE -> begin and end tokens
//	addedSet        normalize     splitter  bpe    postProcessor
//
// and back through Decode: token texts -> sinks -> text. Decode is a Stream run
// to its end, so that streamed and decoded text cannot differ. A Stopper watches
// streamed text for stop strings.
//
// The split patterns of published tokenizers are regular expressions with
// look-ahead and class intersection, which package regexp has not. They are
// recognised by their text and matched by hand-written splitters; the tests
// compare each with a backtracking regexp engine. Character classes are those of
// package unicode.
//
// BPE is defined by joining the leftmost pair of lowest rank again and again. It
// is done by a scan for short pieces and a heap for long ones, remembered in a
// cache of fixed size, and, for models whose piece is the whole text, on parts
// between which nothing can join. The tests compare all of these with the
// definition.
//
// Chat templates are rendered by github.com/ardanlabs/jinja. Its values keep the
// order of keys and tell undefined from none; white space, printing, tojson and
// some string methods differ from Jinja2, so a template is rewritten before it
// is compiled (prepareTemplate) and gets our functions for these. A construct
// that the engine lacks is an error, at compilation or when it is reached.
// Templates come with the checkpoint and are trusted like its weights: they
// cannot read files, but a macro that calls itself without end is not stopped.
//
// Text that is not valid UTF-8 is encoded as if every maximal invalid part were
// U+FFFD. Ids that name no token decode to nothing. Text is below 2 GiB.
//
// A Tokenizer and a ChatTemplate are safe for concurrent use. A Stream and a
// Stopper belong to one request each.
package tokenizer
