// Package boxsim predicts all-reduces and verify passes on boxes that are not here.
package boxsim
