// Package nano is the model pair inside the program: a small target of the
// Kimi-K2.5 form (latent attention, routed experts in INT4) and its EAGLE-3
// drafter, both trained on the Go standard library's sources.
//
// The pair is two ordinary checkpoint folders, and nothing treats it specially
// after Unpack: the supervisor calls Unpack once, and the ranks map the files,
// so all processes of a group share their pages in the page cache. The copy in
// the program is read by Unpack and never again.
//
// Invariants: an unpacked folder is complete (it appears by rename) and has the
// embedded bytes (Unpack compares them whenever a file has changed since it last
// did, and replaces a folder that differs); its name carries the hash of the contents, so builds with different
// pairs never meet.
//
// The folder recipe trains and evaluates the pair; MODEL_CARD.md says what it is
// good for and what not.
package nano
