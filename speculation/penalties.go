package speculation

// tally counts the tokens before a node: those in the cache, and for the time of
// a walk those of the path.
type tally struct {
	prompt int // the first so many tokens are the prompt
	total  int // tokens counted so far
	counts []tokenCount
	where  map[int32]int // token -> its place in counts
}

type tokenCount struct {
	token          int32
	prompt, output int32
}

func (t *tally) add(token int32) {
	place, ok := t.where[token]
	if !ok {
		if t.where == nil {
			t.where = make(map[int32]int)
		}
		place = len(t.counts)
		t.where[token] = place
		t.counts = append(t.counts, tokenCount{token: token})
	}
	if t.total < t.prompt {
		t.counts[place].prompt++
	} else {
		t.counts[place].output++
	}
	t.total++
}

// remove takes back the last add, which was of token.
func (t *tally) remove(token int32) {
	t.total--
	count := &t.counts[t.where[token]]
	if t.total < t.prompt {
		count.prompt--
	} else {
		count.output--
	}
}

// penalise applies the penalties of p to one row of logits.
//
// A repeated token's logit is divided by the repetition penalty where positive and
// multiplied where negative (Keskar et al., 2019); frequency and presence are
// subtracted, as OpenAI documents them.
func (t *tally) penalise(p *Params, logits []float32) {
	repeats := p.repeats()
	for _, count := range t.counts {
		logit := logits[count.token]
		if repeats && count.prompt+count.output > 0 {
			if logit > 0 {
				logit /= p.RepetitionPenalty
			} else {
				logit *= p.RepetitionPenalty
			}
		}
		if count.output > 0 {
			logit -= p.FrequencyPenalty * float32(count.output)
			logit -= p.PresencePenalty
		}
		logits[count.token] = logit
	}
}
