const field = document.getElementById('username');
const verdict = document.getElementById('verdict');
const go = document.getElementById('go');
let latest = 0;
let timer;

function show(text, bad) {
  verdict.textContent = text;
  verdict.className = bad ? 'error' : 'soft';
  go.disabled = bad;
}

async function check() {
  const mine = ++latest;
  const name = field.value;
  if (name === '') return show('', false);
  try {
    const response = await fetch('check?' + new URLSearchParams({ username: name }), { credentials: 'include' });
    const answer = await response.json();
    if (mine !== latest) return;
    if (answer.available) show('This name is free.', false);
    else show(answer.error || 'This name is taken.', true);
  } catch {
    // The server checks again when the form arrives.
    if (mine === latest) show('', false);
  }
}

field.addEventListener('input', () => {
  clearTimeout(timer);
  timer = setTimeout(check, 300);
});
check();
