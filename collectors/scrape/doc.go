// Package scrape fetches the metrics of model servers, one loop per target.
package scrape
