package modeltest

import "fmt"

// DraftLayer names the parts of an EAGLE-3 drafter for the oracle.
type DraftLayer struct {
	Layer              string // prefix of the decoder layer, with the dot
	Root               string // prefix of fc, norm and the like
	Head               string // name of the head
	Captures           int
	NormBeforeResidual bool
	NormBeforeFC       bool
	NormEachCapture    bool
	NormOutput         bool
}

// DraftInputs is what the layer makes of captured features before its first norm.
func (o *Oracle) DraftInputs(d DraftLayer, features [][]float64) [][]float64 {
	if d.NormEachCapture {
		width := len(features[0]) / d.Captures
		normed := make([][]float64, len(features))
		for c := range d.Captures {
			part := make([][]float64, len(features))
			for t := range features {
				part[t] = features[t][c*width : (c+1)*width]
			}
			for t, row := range o.norm(part, fmt.Sprintf("%sfc_norm.%d", d.Root, c)) {
				normed[t] = append(normed[t], row...)
			}
		}
		features = normed
	}
	if d.NormBeforeFC {
		features = o.norm(features, d.Root+"input_norm")
	}
	return o.linear(d.Root+"fc", features)
}

// DraftRows is the features that the layer leaves for each row, given every
// row's own feature h and embedded token.
func (o *Oracle) DraftRows(d DraftLayer, h, embedded [][]float64) [][]float64 {
	normed, tokens := o.norm(h, d.Layer+"hidden_norm"), o.norm(embedded, d.Layer+"input_layernorm")
	joined, z := make([][]float64, len(h)), make([][]float64, len(h))
	for t := range h {
		joined[t] = append(append([]float64(nil), tokens[t]...), normed[t]...)
		z[t] = append([]float64(nil), h[t]...)
		if d.NormBeforeResidual {
			z[t] = append([]float64(nil), normed[t]...)
		}
	}
	add(z, o.attention(0, d.Layer+"self_attn.", joined))
	add(z, o.mlp(d.Layer+"mlp.", o.norm(z, d.Layer+"post_attention_layernorm")))
	if d.NormOutput {
		return o.norm(z, d.Root+"norm")
	}
	return z
}

// DraftLogits is the logits that a head, the drafter's or its target's, makes of
// the features that rows leave.
func (o *Oracle) DraftLogits(d DraftLayer, head *Oracle, z [][]float64) [][]float64 {
	if !d.NormOutput {
		z = o.norm(z, d.Root+"norm")
	}
	return head.linear(d.Head, z)
}

// Embed is the rows of an embedding table.
func (o *Oracle) Embed(name string, tokens []int32) [][]float64 {
	table := o.weight(name)
	out := make([][]float64, len(tokens))
	for t, id := range tokens {
		out[t] = table.row(int(id))
	}
	return out
}
