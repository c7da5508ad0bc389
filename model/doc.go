// Package model describes language models to the rest of Octet: the
// configuration read from a checkpoint's config.json, how work is divided over
// the ranks of a group, rotary tables, and the Model interface that every
// architecture implements.
//
// Packages below it build on each other in one direction: model/llama and
// model/deepseek are architectures, made of model/layers, which load their
// weights through model/checkpoint; model/kvcache hands out cache slots; and
// model/eagle3 is the drafter.
//
// A Model belongs to one rank and is used from that rank's engine thread only.
// Every rank of a group makes the same calls in the same order.
package model
