package openai

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/coordinator/coordinatortest"
)

// FuzzRequest holds that any JSON object is either read or refused with a status
// that blames the client.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"model":"toy","prompt":[1,2],"n":2,"stop":["a"],"logit_bias":{"3":-1},"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"toy","prompt":[[1],[2]],"temperature":null,"seed":-1}`,
		`{"model":"toy","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"logprobs":true,"top_logprobs":1}`,
		`{"model":"toy","messages":[{"role":"user"}],"tools":[],"response_format":{"type":"text"}}`,
		`{"prompt":"x","best_of":1,"echo":false}`, `null`, `{"":0}`,
	} {
		f.Add([]byte(seed))
	}
	group := &coordinatortest.Group{Model: coordinatortest.Random(64, 1), Vocab: 64, Blocks: 64, BlockTokens: 16}
	c, err := coordinator.New(coordinator.Config{Model: "toy", Vocab: 64, Context: 512, Blocks: 64}, group)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.Close)
	h := &handler{config: Config{Coordinator: c}, limits: c.Config()}

	f.Fuzz(func(t *testing.T, body []byte) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(body, &fields) != nil {
			t.Skip()
		}
		for _, known := range []map[string]field{completionFields, chatFields} {
			p, err := h.read(fields, known)
			if err == nil {
				p.requests("x")
				continue
			}
			if api := toAPI(err); api.status != http.StatusBadRequest && api.status != http.StatusNotFound {
				t.Errorf("%s: %v (status %d)", body, err, api.status)
			}
			if api := (*apiError)(nil); errors.As(err, &api) && api.Message == "" {
				t.Errorf("%s: an error without a message", body)
			}
		}
	})
}
