package actors

import (
	"testing"
	"time"
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
