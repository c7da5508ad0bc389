package openai

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/coordinator/coordinatortest"
)

func TestParametersAreRefusedByName(t *testing.T) {
	s := start(t, nil)
	chat := `"model":"toy","messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct{ path, body, param, code string }{
		{"chat/completions", chat + `,"tools":[{"type":"function"}]`, "tools", "unsupported_parameter"},
		{"chat/completions", chat + `,"response_format":{"type":"json_object"}`, "response_format", "unsupported_parameter"},
		{"chat/completions", chat + `,"temprature":1`, "temprature", "unknown_parameter"},
		{"chat/completions", chat + `,"top_logprobs":3`, "top_logprobs", ""},
		{"chat/completions", chat + `,"n":0`, "n", ""},
		{"chat/completions", chat + `,"stream_options":{"include_usage":true}`, "stream_options", ""},
		{"chat/completions", chat + `,"stream":true,"stream_options":{"chunks":true}`, "stream_options", ""},
		{"chat/completions", `"model":"toy"`, "messages", ""},
		{"chat/completions", `"model":"toy","messages":[]`, "messages", ""},
		{"chat/completions", `"model":"toy","messages":[{"content":"x"}]`, "messages", ""},
		{"chat/completions", `"model":"toy","messages":[{"role":"tool","content":"x"}]`, "messages", ""},
		{"chat/completions", `"model":"toy","messages":[{"role":"user","content":[{"type":"image_url"}]}]`, "messages", ""},
		{"completions", `"model":"toy"`, "prompt", ""},
		{"completions", `"prompt":"x"`, "model", ""},
		{"completions", `"model":"toy","prompt":{}`, "prompt", ""},
		{"completions", `"model":"toy","prompt":[]`, "prompt", ""},
		{"completions", `"model":"toy","prompt":""`, "prompt", ""},
		{"completions", `"model":"toy","prompt":["x",""]`, "prompt", ""},
		{"completions", `"model":"toy","prompt":[99999]`, "prompt", ""},
		{"completions", `"model":"toy","prompt":"x","echo":true`, "echo", "unsupported_parameter"},
		{"completions", `"model":"toy","prompt":"x","best_of":3`, "best_of", "unsupported_parameter"},
		{"completions", `"model":"toy","prompt":"x","temperature":2.5`, "temperature", ""},
		{"completions", `"model":"toy","prompt":"x","temperature":"warm"`, "temperature", ""},
		{"completions", `"model":"toy","prompt":"x","repetition_penalty":0`, "repetition_penalty", ""},
		{"completions", `"model":"toy","prompt":"x","top_p":0`, "top_p", ""},
		{"completions", `"model":"toy","prompt":"x","min_p":1.5`, "min_p", ""},
		{"completions", `"model":"toy","prompt":"x","max_tokens":0`, "max_tokens", ""},
		{"completions", `"model":"toy","prompt":"x","max_tokens":5000`, "max_tokens", ""},
		{"completions", `"model":"toy","prompt":"x","logit_bias":{"a":1}`, "logit_bias", ""},
		{"completions", `"model":"toy","prompt":"x","logit_bias":{"1":101}`, "logit_bias", ""},
		{"completions", `"model":"toy","prompt":"x","logit_bias":{"99999":1}`, "logit_bias", ""},
		{"completions", `"model":"toy","prompt":"x","stop":[""]`, "stop", ""},
		{"completions", `"model":"toy","prompt":"x","stop":7`, "stop", ""},
		{"completions", `"model":"toy","prompt":"x","logprobs":21`, "logprobs", ""},
		{"completions", `"model":"toy","prompt":"x","speculation":"medusa"`, "speculation", ""},
		{"completions", `"model":"toy","prompt":"x","min_tokens":3`, "min_tokens", "unknown_parameter"},
	} {
		status, data := s.do(t, "POST", "/v1/"+c.path, "{"+c.body+"}")
		var got answer
		if err := json.Unmarshal(data, &got); err != nil || got.Error == nil {
			t.Errorf("%s: %v: %s", c.body, err, data)
			continue
		}
		if status != http.StatusBadRequest || got.Error.Param != c.param || got.Error.Type != "invalid_request_error" || c.code != "" && got.Error.Code != c.code {
			t.Errorf("%s: status %d, %+v; want parameter %s, code %q", c.body, status, got.Error, c.param, c.code)
		}
		if !strings.Contains(got.Error.Message, c.param) {
			t.Errorf("%s: the message does not name %s: %s", c.body, c.param, got.Error.Message)
		}
	}
	s.atRest(t)
}

func TestOtherErrorsHaveTheirStatus(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/completions", `{"model":"gpt-9","prompt":"x"}`, http.StatusNotFound},
		{"GET", "/v1/models/gpt-9", "", http.StatusNotFound},
		{"GET", "/v1/models/toy", "", http.StatusOK},
		{"GET", "/v1/models", "", http.StatusOK},
		{"GET", "/v1/completions", "", http.StatusMethodNotAllowed},
		{"POST", "/v1/embeddings", "{}", http.StatusNotFound},
		{"POST", "/v1/completions", `[1]`, http.StatusBadRequest},
		{"POST", "/v1/completions", `{"model":`, http.StatusBadRequest},
		{"GET", "/live", "", http.StatusOK},
	} {
		status, data := s.do(t, c.method, c.path, c.body)
		var got answer
		if err := json.Unmarshal(data, &got); err != nil || status != c.status || (status != http.StatusOK) != (got.Error != nil) {
			t.Errorf("%s %s: status %d, want %d: %s", c.method, c.path, status, c.status, data)
		}
	}
}

func TestTheTokenGuardsAllButHealth(t *testing.T) {
	s := start(t, func(c *Config, _ *coordinator.Config, _ *coordinatortest.Group) { c.Token = "secret" })
	for path, want := range map[string]int{"/v1/models": 401, "/metrics": 401, "/nothing": 401, "/live": 200} {
		if status, data := s.do(t, "GET", path, ""); status != want {
			t.Errorf("%s: status %d: %s", path, status, data)
		}
	}
	for token, want := range map[string]int{"Bearer secret": 200, "Bearer secre": 401, "secret": 401} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", token)
		response, err := s.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%q: status %d", token, response.StatusCode)
		}
	}
}
