// Attention for the interactive figures: the equation of chapter 1 on plain arrays of numbers.
// tests/web/test_interactive_figures.py compares every function here with attnlib's.
const attentionNumbers = (() => {
  const dot = (a, b) => a.reduce((sum, entry, place) => sum + entry * b[place], 0);

  // A score of -Infinity excludes; a row of nothing else gives zeros.
  function softmax(scores) {
    const top = Math.max(...scores);
    if (top === -Infinity) return scores.map(() => 0);
    const powers = scores.map((score) => Math.exp(score - top));
    const total = powers.reduce((sum, power) => sum + power, 0);
    return powers.map((power) => power / total);
  }

  const mix = (weights, V) => V[0].map((_, column) => dot(weights, V.map((value) => value[column])));

  function attend(q, K, V) {
    const dots = K.map((k) => dot(q, k));
    const scores = dots.map((product) => product / Math.sqrt(q.length));
    const weights = softmax(scores);
    return { dots, scores, weights, output: mix(weights, V) };
  }

  const causal = (scores) => scores.map((row, i) => row.map((score, j) => (j > i ? -Infinity : score)));

  return { softmax, mix, attend, causal };
})();
