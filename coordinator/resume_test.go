package coordinator

import (
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator/coordinatortest"
)

// left is a log with what a process that was killed leaves of a request.
func left(t *testing.T, request Request, tokens []int32) *DiskLog {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	first := openLog(t, path, 8)
	if err := first.Begin(&request); err != nil {
		t.Fatal(err)
	}
	if err := first.Append(request.ID, tokens, nil); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := openLog(t, path, 8)
	t.Cleanup(func() { second.Close() })
	return second
}

func TestARequestOfTheProcessBeforeGoesOnWithoutItsClient(t *testing.T) {
	request := Request{ID: "left", Prompt: prompt(20), MaxTokens: 40, Sampling: round.Sampling{Temperature: 1, Seed: 31, Logprobs: -1}}
	quiet, _ := start(t, nil)
	want := tokenIDs(collect(t, quiet, request))
	log := left(t, request, want[:15])
	c, _ := start(t, func(config *Config, _ *coordinatortest.Group) { config.Log = log })

	for deadline := time.Now().Add(limit); c.Stats().Completed == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody went on with the request")
		}
	}
	if record, _ := log.Find("left"); !slices.Equal(record.Tokens, want) {
		t.Errorf("the log has %v, want %v", record.Tokens, want)
	}
	// Its client comes late, and finds all of it.
	request.Resume = 7
	rest := collect(t, c, request)
	if rest.Offset != 7 || !slices.Equal(tokenIDs(rest), want[7:]) || rest.Finish.Reason != FinishLength {
		t.Errorf("resumed at %d with %v, %v; want %v", rest.Offset, tokenIDs(rest), rest.Finish.Reason, want[7:])
	}
}

func TestAClientTakesItsRequestBackWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		request := Request{ID: "mine", Prompt: prompt(20), MaxTokens: 400, Sampling: round.Sampling{Temperature: 1, Seed: 5, Logprobs: -1}}
		quiet, _ := start(t, nil)
		want := tokenIDs(collect(t, quiet, request))
		c, _ := start(t, func(_ *Config, g *coordinatortest.Group) {
			g.Cost = func(*round.Round) (draft, verify time.Duration) { return 0, time.Millisecond }
		})
		lost, err := c.Generate(testContext(t), request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lost.Next(testContext(t)); err != nil {
			t.Fatal(err)
		}
		again := request
		if _, err := c.Generate(testContext(t), again); err == nil {
			t.Fatal("a second request under the same id was taken")
		}
		again.Resume = 1
		rest := collect(t, c, again)
		if !slices.Equal(tokenIDs(rest), want[1:]) {
			t.Errorf("went on with %v, want %v", tokenIDs(rest), want[1:])
		}
		if all, err := lost.Collect(testContext(t)); err != nil || all.Finish.Reason != FinishCancelled {
			t.Errorf("the lost stream ended with %+v, %v; want it cancelled", all.Finish, err)
		}
	})
}

func TestWhenToFlushIsRead(t *testing.T) {
	for text, want := range map[string]Sync{"always": {Always: true}, "never": {}, "50ms": {Every: 50 * time.Millisecond}} {
		if got, err := ParseSync(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "sometimes", "-1s", "0s"} {
		if _, err := ParseSync(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
