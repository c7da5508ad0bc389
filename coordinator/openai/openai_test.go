package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/coordinator/coordinatortest"
	"github.com/octet-run/octet/model/tokenizer"
	"github.com/octet-run/octet/speculation"
)

// limit is how long anything may take on a machine that is busy with other things.
const limit = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loadTokenizer loads the trained pair's tokenizer, with a chat template.
func loadTokenizer(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	from, dir := "../../testdata/fixtures/eagle3-llama-pair/target", t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	template := "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}" +
		"[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// site is a server over a toy group.
type site struct {
	*httptest.Server
	tok         *tokenizer.Tokenizer
	coordinator *coordinator.Coordinator
	group       *coordinatortest.Group
}

func start(t *testing.T, change func(*Config, *coordinator.Config, *coordinatortest.Group)) *site {
	t.Helper()
	tok := loadTokenizer(t)
	group := &coordinatortest.Group{Model: coordinatortest.Random(tok.VocabSize(), 1), Vocab: tok.VocabSize(), Blocks: 400, BlockTokens: 16}
	metrics := NewMetrics("toy")
	limits := coordinator.Config{
		Model: "toy", Vocab: tok.VocabSize(), Context: 2048, Blocks: 400, Eagle3: true, Tokenizer: tok, EOS: tok.EOS(), Observer: metrics,
		Drafting: coordinator.Drafting{Mode: coordinator.ModeEagle3, Shape: speculation.Shape{TopK: 2, Steps: 3, Nodes: 8}},
	}
	config := Config{Metrics: metrics}
	if change != nil {
		change(&config, &limits, group)
	}
	c, err := coordinator.New(limits, group)
	if err != nil {
		t.Fatal(err)
	}
	config.Coordinator = c
	server := httptest.NewServer(NewHandler(config))
	t.Cleanup(func() {
		server.Close()
		server.Client().CloseIdleConnections()
		c.Close()
	})
	return &site{server, tok, c, group}
}

// says makes the model say text, then its end token, after a prompt of that many tokens.
func says(tok *tokenizer.Tokenizer, group *coordinatortest.Group, promptTokens int, text string) {
	group.Model = coordinatortest.Script(tok.VocabSize(), promptTokens, append(tok.EncodeOrdinary(text), tok.EOS()[0]))
}

func (s *site) do(t *testing.T, method, path, body string) (status int, answer []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}

// post sends a JSON object and reads one.
func post[Answer any](t *testing.T, s *site, path, body string) Answer {
	t.Helper()
	status, data := s.do(t, "POST", path, body)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", path, status, data)
	}
	var answer Answer
	if err := json.Unmarshal(data, &answer); err != nil {
		t.Fatalf("%s: %v: %s", path, err, data)
	}
	return answer
}

type answer struct {
	ID      string
	Object  string
	Model   string
	Choices []struct {
		Index   int
		Text    string
		Message struct {
			Role, Content string
		}
		Delta struct {
			Role, Content string
		}
		Logprobs struct {
			Tokens        []string
			TokenLogprobs []float64            `json:"token_logprobs"`
			TopLogprobs   []map[string]float64 `json:"top_logprobs"`
			TextOffset    []int                `json:"text_offset"`
			Content       []struct {
				Token       string
				Logprob     float64
				Bytes       []int
				TopLogprobs []struct{ Token string } `json:"top_logprobs"`
			}
		}
		FinishReason string  `json:"finish_reason"`
		TokenIDs     []int32 `json:"token_ids"`
	}
	Usage *usage
	Error *struct{ Message, Type, Param, Code string }
}

// events posts a request and reads its stream. done says that [DONE] came.
func (s *site) events(t *testing.T, path, body string) (list []answer, done bool) {
	t.Helper()
	status, data := s.do(t, "POST", path, body)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, data)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if text == "[DONE]" {
			done = true
			continue
		}
		if done {
			t.Errorf("after [DONE]: %s", text)
		}
		var event answer
		if err := json.Unmarshal([]byte(text), &event); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		list = append(list, event)
	}
	return list, done
}

// atRest waits until nothing runs and every block is free.
func (s *site) atRest(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		stats := s.coordinator.Stats()
		if stats.Running+stats.Waiting == 0 && stats.FreeBlocks == 400 && s.group.FreeBlocks() == 400 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("at rest %d run, %d wait, %d and %d blocks are free", stats.Running, stats.Waiting, stats.FreeBlocks, s.group.FreeBlocks())
		}
	}
}

func TestChatAnswersWithTextUsageAndReason(t *testing.T) {
	s := start(t, nil)
	const text = "func naïve() { 世界 }"
	prompt := s.tok.Encode("[user] hi\n[assistant]", false)
	says(s.tok, s.group, len(prompt), text)
	want := len(s.tok.EncodeOrdinary(text)) + 1
	for _, content := range []string{`"hi"`, `[{"type":"text","text":"h"},{"type":"text","text":"i"}]`} {
		body := `{"model":"toy","messages":[{"role":"user","content":` + content + `}],"logprobs":true,"top_logprobs":2,"temperature":0}`
		got := post[answer](t, s, "/v1/chat/completions", body)
		c := got.Choices[0]
		if c.Message.Content != text || c.Message.Role != "assistant" || c.FinishReason != "stop" || got.Object != "chat.completion" {
			t.Errorf("answer %+v", got)
		}
		if got.Usage.PromptTokens != len(prompt) || got.Usage.CompletionTokens != want || got.Usage.TotalTokens != len(prompt)+want {
			t.Errorf("usage %+v, want %d + %d", got.Usage, len(prompt), want)
		}
		if len(c.Logprobs.Content) != want || len(c.Logprobs.Content[0].TopLogprobs) != 2 {
			t.Errorf("%d log-probabilities for %d tokens", len(c.Logprobs.Content), want)
		}
		if first := c.Logprobs.Content[0]; len(first.Bytes) != len(first.Token) || first.Logprob > 0 {
			t.Errorf("first log-probability %+v", first)
		}
	}
	s.atRest(t)
}

func TestChatStreamIsTheWholeAnswerInParts(t *testing.T) {
	s := start(t, nil)
	const text = "for i := range 10 { 🎉 }"
	prompt := s.tok.Encode("[user] hi\n[assistant]", false)
	says(s.tok, s.group, len(prompt), text)
	body := `{"model":"toy","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"temperature":0}`
	events, done := s.events(t, "/v1/chat/completions", body)
	if !done {
		t.Error("no [DONE]")
	}
	if events[0].Choices[0].Delta.Role != "assistant" || events[0].Object != "chat.completion.chunk" {
		t.Errorf("first chunk %+v", events[0])
	}
	var content, reason string
	logprobs := 0
	for _, event := range events[:len(events)-1] {
		if event.ID != events[0].ID || event.Usage != nil {
			t.Errorf("chunk %+v", event)
		}
		content += event.Choices[0].Delta.Content
		reason += event.Choices[0].FinishReason
		logprobs += len(event.Choices[0].Logprobs.Content)
	}
	last := events[len(events)-1]
	if content != text || reason != "stop" || len(last.Choices) != 0 || last.Usage == nil || last.Usage.CompletionTokens != logprobs {
		t.Errorf("content %q, reason %q, %d log-probabilities, last %+v", content, reason, logprobs, last.Usage)
	}
	s.atRest(t)
}

func TestCompletionsServeManyPromptsAndChoices(t *testing.T) {
	s := start(t, nil)
	body := `{"model":"toy","prompt":["func a()","func b()"],"n":2,"max_tokens":12,"seed":7,"logprobs":1,"return_token_ids":true,"ignore_eos":true`
	got := post[answer](t, s, "/v1/completions", body+"}")
	if len(got.Choices) != 4 || got.Usage.CompletionTokens != 48 {
		t.Fatalf("%d choices, usage %+v", len(got.Choices), got.Usage)
	}
	for i, c := range got.Choices {
		if c.Index != i || len(c.TokenIDs) != 12 || c.FinishReason != "length" || len(c.Logprobs.Tokens) != 12 ||
			len(c.Logprobs.TextOffset) != 12 || len(c.Logprobs.TokenLogprobs) != 12 || len(c.Logprobs.TopLogprobs) != 12 {
			t.Errorf("choice %d: %+v", i, c)
		}
	}
	if slices.Equal(got.Choices[0].TokenIDs, got.Choices[1].TokenIDs) {
		t.Error("two choices of one prompt are the same at temperature 1")
	}
	again := post[answer](t, s, "/v1/completions", body+"}")
	events, done := s.events(t, "/v1/completions", body+`,"stream":true}`)
	streamed := map[int][]int32{}
	texts := map[int]string{}
	for _, event := range events {
		for _, c := range event.Choices {
			streamed[c.Index] = append(streamed[c.Index], c.TokenIDs...)
			texts[c.Index] += c.Text
		}
	}
	for i, c := range got.Choices {
		if !slices.Equal(again.Choices[i].TokenIDs, c.TokenIDs) || !slices.Equal(streamed[i], c.TokenIDs) || texts[i] != c.Text || !done {
			t.Errorf("choice %d with the same seed: %v, %v, streamed %v", i, c.TokenIDs, again.Choices[i].TokenIDs, streamed[i])
		}
	}
	s.atRest(t)
}

func TestPromptsComeInEveryForm(t *testing.T) {
	s := start(t, nil)
	for prompt, want := range map[string]int{
		`"func a()"`: 1, `["func a()"]`: 1, `["func a()","func b()"]`: 2, `[5,6]`: 1, `[[5,6]]`: 1, `[[5,6],[7]]`: 2,
	} {
		got := post[answer](t, s, "/v1/completions", `{"model":"toy","prompt":`+prompt+`,"max_tokens":3,"ignore_eos":true}`)
		if len(got.Choices) != want || got.Usage.CompletionTokens != 3*want {
			t.Errorf("prompt %s: %d choices, usage %+v", prompt, len(got.Choices), got.Usage)
		}
	}
	for _, prompt := range []string{`[null]`, `["a",null]`, `["a",5]`, `[[5],"a"]`, `[[5,null]]`, `5`, `{}`} {
		raw := json.RawMessage(prompt)
		if lists, texts, ok := promptLists(raw); ok {
			t.Errorf("prompt %s was taken for %v, %v", prompt, lists, texts)
		}
	}
	s.atRest(t)
}

func TestSeededOutputIsTheSameInEverySpeculationMode(t *testing.T) {
	s := start(t, nil)
	var want []int32
	for _, mode := range []string{"off", "eagle3", "ngram", "auto"} {
		body := `{"model":"toy","prompt":[5,6,7],"max_tokens":40,"seed":3,"temperature":0.8,"min_p":0.01,"presence_penalty":0.5,"repetition_penalty":1.2,"return_token_ids":true,"speculation":"` + mode + `"}`
		got := post[answer](t, s, "/v1/completions", body).Choices[0].TokenIDs
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", mode, got, want)
		}
	}
}

func TestStopCutsTextTokensAndUsageAlike(t *testing.T) {
	s := start(t, nil)
	prompt := s.tok.Encode("x", true)
	says(s.tok, s.group, len(prompt), "a, b; c, d")
	for _, stream := range []string{"false", "true"} {
		body := `{"model":"toy","prompt":"x","max_tokens":50,"stop":["; c"],"logprobs":0,"return_token_ids":true,"temperature":0,"stream":` + stream
		var text string
		tokens, completion := 0, 0
		if stream == "false" {
			got := post[answer](t, s, "/v1/completions", body+"}")
			text, tokens, completion = got.Choices[0].Text, len(got.Choices[0].TokenIDs), got.Usage.CompletionTokens
		} else {
			events, _ := s.events(t, "/v1/completions", body+`,"stream_options":{"include_usage":true}}`)
			for _, event := range events {
				if event.Usage != nil {
					completion = event.Usage.CompletionTokens
				}
				for _, c := range event.Choices {
					text += c.Text
					tokens += len(c.TokenIDs)
				}
			}
		}
		if text != "a, b" || tokens != completion || tokens != len(s.tok.EncodeOrdinary("a, b")) {
			t.Errorf("stream %s: text %q, %d tokens, usage %d", stream, text, tokens, completion)
		}
	}
}

func TestAStreamThatBreaksEndsWithAnErrorAndWithoutDone(t *testing.T) {
	errGone := errors.New("rank 6 exited with status 137")
	rounds := 0
	s := start(t, func(_ *Config, _ *coordinator.Config, g *coordinatortest.Group) {
		g.Before = func(context.Context, *round.Round) error {
			if rounds++; rounds > 4 {
				g.Give(errGone)
				return errGone
			}
			return nil
		}
	})
	events, done := s.events(t, "/v1/completions", `{"model":"toy","prompt":"x","max_tokens":100,"ignore_eos":true,"stream":true}`)
	last := events[len(events)-1]
	if done || last.Error == nil || !strings.Contains(last.Error.Message, "rank 6") || len(events) < 2 {
		t.Errorf("done %v after %d events, the last is %+v", done, len(events), last)
	}
	status, data := s.do(t, "POST", "/v1/completions", `{"model":"toy","prompt":"x"}`)
	if status != http.StatusServiceUnavailable || !strings.Contains(string(data), "rank 6") {
		t.Errorf("the next request: status %d: %s", status, data)
	}
	if status, _ := s.do(t, "GET", "/ready", ""); status != http.StatusServiceUnavailable {
		t.Errorf("ready: %d", status)
	}
	if status, _ := s.do(t, "GET", "/live", ""); status != http.StatusOK {
		t.Errorf("live: %d", status)
	}
}

func TestAClientThatGoesAwayFreesItsSlot(t *testing.T) {
	s := start(t, func(_ *Config, _ *coordinator.Config, g *coordinatortest.Group) {
		g.Cost = func(*round.Round) (draft, verify time.Duration) { return 0, 20 * time.Millisecond }
	})
	for _, stream := range []string{"false", "true"} {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		body := `{"model":"toy","prompt":"x","max_tokens":1900,"ignore_eos":true,"n":3,"stream":` + stream + `}`
		request, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.Client().Do(request)
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		cancel()
		if err == nil {
			t.Error("the request came to its end")
		}
		s.atRest(t)
	}
}

func TestMetricsCountWhatWasDelivered(t *testing.T) {
	s := start(t, nil)
	post[answer](t, s, "/v1/completions", `{"model":"toy","prompt":[5,6,7],"max_tokens":30,"ignore_eos":true}`)
	s.atRest(t)
	status, data := s.do(t, "GET", "/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	for _, line := range []string{
		`octet_generated_tokens_total{model_name="toy"} 30`,
		`octet_prompt_tokens_total{model_name="toy"} 3`,
		`octet_requests_total{model_name="toy",reason="length"} 1`,
		`octet_ready{model_name="toy"} 1`,
		`octet_kv_free_blocks{model_name="toy"} 400`,
		`vllm:generation_tokens_total{model_name="toy"} 30`,
		`sglang:num_running_reqs{model_name="toy"} 0`,
		`vllm:request_success_total{finished_reason="length",model_name="toy"} 1`,
		`octet_time_to_first_token_seconds_count{model_name="toy"} 1`,
	} {
		if !strings.Contains(string(data), line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

func TestServeFinishesWhatRuns(t *testing.T) {
	running, leaving := make(chan struct{}), make(chan struct{})
	s := start(t, func(_ *Config, _ *coordinator.Config, g *coordinatortest.Group) {
		var once sync.Once
		g.Before = func(ctx context.Context, _ *round.Round) error {
			once.Do(func() { close(running) })
			select {
			case <-leaving:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, listener, s.Config.Handler, limit) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answered := make(chan int, 1)
	go func() {
		response, err := client.Post("http://"+listener.Addr().String()+"/v1/completions", "application/json",
			strings.NewReader(`{"model":"toy","prompt":"x","max_tokens":40,"ignore_eos":true}`))
		if err != nil {
			answered <- 0
			return
		}
		response.Body.Close()
		answered <- response.StatusCode
	}()
	<-running
	cancel()
	close(leaving)
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the request under way: status %d", status)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}
