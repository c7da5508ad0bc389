package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/octet-run/octet/coordinator"
)

// part is what one of an answer's streams says next.
type part struct {
	index int
	event coordinator.Event
	err   error
}

// stream writes server-sent events. A stream that cannot be finished ends with an
// error event and without [DONE].
func (h *handler) stream(ctx context.Context, w http.ResponseWriter, p *params, f format, streams []*coordinator.Stream) {
	out := &sse{w: w, control: http.NewResponseController(w)}
	out.start()
	for i := range streams {
		if opening := f.opening(i); opening != nil {
			out.chunk(p, f, []any{opening}, nil)
		}
	}
	total := p.newUsage()
	parts := merge(ctx, streams)
	first := make([]bool, len(streams))
	for left := len(streams); left > 0; {
		var next part
		select {
		case next = <-parts:
		case <-ctx.Done():
			return // the client is gone
		}
		if next.err == nil && next.event.Finish != nil {
			next.err = finishError(next.event.Finish)
		}
		if next.err != nil {
			out.send(toAPI(next.err).body())
			return
		}
		c := choice{index: next.index, event: next.event}
		if !first[next.index] {
			first[next.index], c.prompt = true, streams[next.index].Prompt()
		}
		if next.event.Finish != nil {
			left--
			total.add(next.event.Finish)
		}
		out.chunk(p, f, []any{f.part(h, p, c)}, nil)
		if out.err != nil {
			return // the client is gone
		}
	}
	if p.includeUsage {
		out.chunk(p, f, []any{}, total)
	}
	out.write("[DONE]")
}

// merge hands over the events of all streams, each stream's in order, until ctx ends.
func merge(ctx context.Context, streams []*coordinator.Stream) <-chan part {
	parts := make(chan part)
	for i, stream := range streams {
		go func() {
			for {
				event, err := stream.Next(ctx)
				select {
				case parts <- part{i, event, err}:
				case <-ctx.Done():
					return
				}
				if err != nil || event.Finish != nil {
					return
				}
			}
		}()
	}
	return parts
}

// sse writes events and remembers the first error.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (s *sse) start() {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("Cache-Control", "no-cache")
	s.w.Header().Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	s.err = s.control.Flush()
}

// chunk sends one chunk. Where usage was asked for, every chunk has the field.
func (s *sse) chunk(p *params, f format, choices []any, total *usage) {
	object := f.wrap(true, choices, total)
	if p.includeUsage && total == nil {
		object["usage"] = nil
	}
	s.send(object)
}

func (s *sse) send(object any) {
	data, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("openai: a chunk cannot be written as JSON: %v", err))
	}
	s.write(string(data))
}

func (s *sse) write(data string) {
	if s.err != nil {
		return
	}
	if _, s.err = fmt.Fprintf(s.w, "data: %s\n\n", data); s.err == nil {
		s.err = s.control.Flush()
	}
}
