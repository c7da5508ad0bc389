package rank

import (
	"path/filepath"
	"testing"

	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
)

// TestTheFloorCountsTheExpertsThatWereChosen has few rows read few experts.
func TestTheFloorCountsTheExpertsThatWereChosen(t *testing.T) {
	c, err := model.ReadConfig(filepath.Join(fixtures, "deepseek-v3-kimi"))
	if err != nil {
		t.Fatal(err)
	}
	files := checkpoint.Synthetic(1)
	defer files.Close()
	result, err := RunVerifyBench(VerifyBench{
		Files: files, Model: c, Shard: model.Shard{Ranks: 2}, Threads: 1, Tokens: []int{1, 64}, Context: 20, Repeats: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	few, many := result.Rows[0].Bytes, result.Rows[1].Bytes
	if few <= 0 || few >= result.WeightBytes || few >= many {
		t.Errorf("1 row reads %d bytes, 64 rows %d, of weights of %d", few, many, result.WeightBytes)
	}
}

func TestTheVerifyBenchTimesEverySize(t *testing.T) {
	c, err := model.ReadConfig(pairConfig(t).Model)
	if err != nil {
		t.Fatal(err)
	}
	files := checkpoint.Synthetic(1)
	defer files.Close()
	result, err := RunVerifyBench(VerifyBench{
		Files: files, Model: c, Shard: model.Shard{Rank: 1, Ranks: 3}, Threads: 1, Tokens: []int{1, 4, 70}, Context: 100, Repeats: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Rows) != 3 || result.WeightBytes <= 0 || result.Bandwidth <= 0 {
		t.Fatalf("measured %+v", result)
	}
	for _, row := range result.Rows {
		if row.Time <= 0 || row.Floor <= 0 {
			t.Errorf("row %+v", row)
		}
	}
}
