package coordinator

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/octet-run/octet/actors/round"
)

// DiskLog is a TokenLog in a file, so that requests can be resumed after the
// process that served them is gone. Writes reach the operating system before they
// return; when they are flushed to the disk, which matters when the whole machine
// goes down, is Sync's to say.
//
// The file has two buckets. requests holds one bucket per request: its request
// under keyRequest, its runs of tokens under rising numbers. ended holds the ids of
// requests that are over, in the order in which they ended.
type DiskLog struct {
	db   *bbolt.DB
	keep int
	// unfinished are the requests that ran when the last process went away.
	unfinished []string

	stop     chan struct{}
	flushing sync.WaitGroup
}

var (
	bucketRequests = []byte("requests")
	bucketEnded    = []byte("ended")
	keyRequest     = []byte("request")
)

// tokenRun is one Append.
type tokenRun struct {
	Tokens   []int32
	Logprobs []round.TokenLogprobs `json:",omitempty"`
}

// lockTimeout is how long OpenDiskLog waits for another process to let go of the file.
const lockTimeout = time.Second

// OpenDiskLog opens or makes a log that keeps up to keep ended records. Requests
// that were running when the last process went away count as ended, unless they
// begin again.
func OpenDiskLog(path string, keep int, when Sync) (*DiskLog, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, NoSync: !when.Always})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		err = errors.New("another server has it open")
	}
	if err != nil {
		return nil, fmt.Errorf("token log %s: %w", path, err)
	}
	l := &DiskLog{db: db, keep: keep, stop: make(chan struct{})}
	if err := db.Update(l.recover); err != nil {
		return nil, errors.Join(fmt.Errorf("token log %s: %w", path, err), db.Close())
	}
	if when.Every > 0 {
		l.flushing.Go(func() { l.flush(when.Every) })
	}
	return l, nil
}

// Close flushes and closes the file.
func (l *DiskLog) Close() error {
	close(l.stop)
	l.flushing.Wait()
	return errors.Join(l.db.Sync(), l.db.Close())
}

func (l *DiskLog) recover(tx *bbolt.Tx) error {
	requests, err := tx.CreateBucketIfNotExists(bucketRequests)
	if err != nil {
		return err
	}
	ended, err := tx.CreateBucketIfNotExists(bucketEnded)
	if err != nil {
		return err
	}
	over := make(map[string]bool)
	err = ended.ForEach(func(_, id []byte) error {
		over[string(id)] = true
		return nil
	})
	if err != nil {
		return err
	}
	err = requests.ForEachBucket(func(id []byte) error {
		if !over[string(id)] {
			l.unfinished = append(l.unfinished, string(id))
		}
		return nil
	})
	for _, id := range l.unfinished {
		err = errors.Join(err, l.end(tx, id))
	}
	return err
}

// Begin implements TokenLog.
func (l *DiskLog) Begin(r *Request) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return l.db.Update(func(tx *bbolt.Tx) error {
		if err := forget(tx, r.ID); err != nil {
			return err
		}
		bucket, err := tx.Bucket(bucketRequests).CreateBucket([]byte(r.ID))
		if err != nil {
			return err
		}
		return bucket.Put(keyRequest, data)
	})
}

// Append implements TokenLog.
func (l *DiskLog) Append(id string, tokens []int32, logprobs []round.TokenLogprobs) error {
	data, err := json.Marshal(tokenRun{tokens, logprobs})
	if err != nil {
		return err
	}
	return l.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketRequests).Bucket([]byte(id))
		if bucket == nil {
			return nil
		}
		return putNext(bucket, data)
	})
}

// End implements TokenLog.
func (l *DiskLog) End(id string) error {
	return l.db.Update(func(tx *bbolt.Tx) error { return l.end(tx, id) })
}

func (l *DiskLog) end(tx *bbolt.Tx, id string) error {
	ended := tx.Bucket(bucketEnded)
	if err := putNext(ended, []byte(id)); err != nil {
		return err
	}
	for {
		cursor := ended.Cursor()
		count := 0
		oldest, oldestID := cursor.First()
		for key := oldest; key != nil && count <= l.keep; key, _ = cursor.Next() {
			count++
		}
		if count <= l.keep {
			return nil
		}
		if err := forget(tx, string(oldestID)); err != nil {
			return err
		}
	}
}

// Find implements TokenLog.
func (l *DiskLog) Find(id string) (record Record, found bool) {
	err := l.db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketRequests).Bucket([]byte(id))
		if bucket == nil {
			return nil
		}
		found = true
		return bucket.ForEach(func(key, value []byte) error {
			if string(key) == string(keyRequest) {
				return json.Unmarshal(value, &record.Request)
			}
			var run tokenRun
			if err := json.Unmarshal(value, &run); err != nil {
				return err
			}
			record.Tokens = append(record.Tokens, run.Tokens...)
			record.Logprobs = append(record.Logprobs, run.Logprobs...)
			return nil
		})
	})
	return record, found && err == nil
}

// Unfinished implements TokenLog.
func (l *DiskLog) Unfinished() []Record {
	var records []Record
	for _, id := range l.unfinished {
		if record, found := l.Find(id); found {
			records = append(records, record)
		}
	}
	return records
}

// putNext puts a value after all others of the bucket.
func putNext(bucket *bbolt.Bucket, value []byte) error {
	next, err := bucket.NextSequence()
	if err != nil {
		return err
	}
	return bucket.Put(binary.BigEndian.AppendUint64(nil, next), value)
}

// forget drops a record and its place among the ended ones.
func forget(tx *bbolt.Tx, id string) error {
	err := tx.Bucket(bucketRequests).DeleteBucket([]byte(id))
	if err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
		return err
	}
	cursor := tx.Bucket(bucketEnded).Cursor()
	for key, value := cursor.First(); key != nil; key, value = cursor.Next() {
		if string(value) == id {
			return cursor.Delete()
		}
	}
	return nil
}
