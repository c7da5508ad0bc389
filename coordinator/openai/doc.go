// Package openai is the HTTP face of a coordinator: OpenAI's completions, chat
// completions and models, health endpoints, and Prometheus metrics.
//
// A parameter that is unknown, or known and not supported, is refused by name;
// none is ignored. Text, tokens, log-probabilities and usage of an answer end at
// one boundary, the coordinator's. The request's context is the HTTP request's: a
// client that goes away frees its slot within one round.
//
// A stream that cannot be finished ends with an error event and without [DONE].
//
// Beyond OpenAI's parameters: top_k, min_p, repetition_penalty, stop_token_ids,
// ignore_eos, return_token_ids, chat_template_kwargs, and speculation ("auto",
// "off", "eagle3", "ngram").
package openai
