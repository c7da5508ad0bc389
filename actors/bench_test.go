package actors

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestBenchRoundMeasuresRoundAndFloor(t *testing.T) {
	result, err := BenchRound(t.Context(), BenchConfig{Ranks: 2, Rounds: 1, Launcher: processes()})
	if err != nil {
		t.Fatal(err)
	}
	if result.P50 <= 0 || result.FloorP50 <= 0 || result.P99 < result.P50 || result.Rounds < 100 {
		t.Fatalf("result is %+v", result)
	}
	nothingLeft(t)
}

func BenchmarkRound(b *testing.B) {
	for _, ranks := range []int{1, 8} {
		b.Run(map[int]string{1: "1 rank", 8: "8 ranks"}[ranks], func(b *testing.B) {
			for b.Loop() {
				result, err := BenchRound(b.Context(), BenchConfig{Ranks: ranks, Rounds: 2000, Launcher: processes()})
				if err != nil {
					b.Fatal(err)
				}
				us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
				b.ReportMetric(us(result.P50), "p50-us")
				b.ReportMetric(us(result.P99), "p99-us")
				b.ReportMetric(us(result.FloorP50), "floor-p50-us")
				b.ReportMetric(us(result.FloorP99), "floor-p99-us")
			}
		})
	}
}

// BenchmarkLoss kills or stops a rank of eight while rounds run: how long until
// Do says so, and until the group serves again.
func BenchmarkLoss(b *testing.B) {
	for name, signal := range map[string]unix.Signal{"SIGKILL": unix.SIGKILL, "SIGSTOP": unix.SIGSTOP} {
		b.Run(name, func(b *testing.B) {
			g, err := StartGroup(b.Context(), Config{Ranks: 8, Launcher: processes(), Restart: Restart{Max: 1 << 20, MaxPause: time.Nanosecond}})
			if err != nil {
				b.Fatal(err)
			}
			var noticed, serving []time.Duration
			for b.Loop() {
				epoch, err := g.WaitServing(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				var struck time.Time
				for i := 0; err == nil; i++ {
					if i == 50 {
						struck = time.Now()
						g.Signal(3, signal)
					}
					_, err = g.Do(b.Context(), decode(epoch))
				}
				noticed = append(noticed, time.Since(struck))
				if _, err := g.WaitServing(b.Context()); err != nil {
					b.Fatal(err)
				}
				serving = append(serving, time.Since(struck))
			}
			ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
			p50, p99 := percentiles(noticed)
			b.ReportMetric(ms(p50), "noticed-p50-ms")
			b.ReportMetric(ms(p99), "noticed-p99-ms")
			p50, p99 = percentiles(serving)
			b.ReportMetric(ms(p50), "serving-p50-ms")
			b.ReportMetric(ms(p99), "serving-p99-ms")
			if err := g.Stop(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkRoundBesideCollector runs rounds while one of two ranks collects
// garbage all the time.
func BenchmarkRoundBesideCollector(b *testing.B) {
	for name, do := range map[string]string{"quiet": "", "collecting": "collect"} {
		b.Run(name, func(b *testing.B) {
			g, err := StartGroup(b.Context(), Config{
				Ranks: 2, Launcher: processes(), Stall: 5 * time.Second, EngineConfig: encode(plan{Rank: 1, Do: do}),
			})
			if err != nil {
				b.Fatal(err)
			}
			var times []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := g.Do(b.Context(), decode(1)); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(start))
				time.Sleep(2 * time.Millisecond) // the rank waits when the next one comes
			}
			p50, p99 := percentiles(times)
			b.ReportMetric(float64(p50)/1e3, "p50-us")
			b.ReportMetric(float64(p99)/1e3, "p99-us")
			if err := g.Stop(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
