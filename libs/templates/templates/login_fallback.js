const form = document.getElementById('login');
const verdict = document.getElementById('verdict');
const providers = document.getElementById('providers');
const go = document.getElementById('go');
const given = new URLSearchParams(location.search);
const { login, sso, own } = form.dataset;

// What an app says about the device that it signs in; it goes on to the login, also on the way through another site.
const device = {};
for (const name of ['device_id', 'initial_device_display_name']) {
  const value = given.get(name);
  if (value) device[name] = value;
}

function show(text, bad) {
  verdict.textContent = text;
  verdict.className = bad ? 'error' : 'soft';
}

async function ask(body) {
  const request = body && {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...device, ...body }),
  };
  const response = await fetch(login, request);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || 'The server did not accept this.');
  return answer;
}

async function signIn(body) {
  go.disabled = true;
  try {
    const answer = await ask(body);
    form.hidden = true;
    providers.replaceChildren();
    show('You are signed in. Go back to your app.', false);
    // The app that opened this page listens under one of these names.
    if (window.matrixLogin?.onLogin) window.matrixLogin.onLogin(answer);
    else if (window.onLogin) window.onLogin(answer);
  } catch (error) {
    go.disabled = false;
    show(error.message, true);
    return false;
  }
  return true;
}

function addProvider(name, id) {
  const link = document.createElement('a');
  const back = own + '?' + new URLSearchParams(device);
  link.className = 'button';
  link.textContent = name;
  link.href = sso + (id ? '/' + encodeURIComponent(id) : '') + '?' + new URLSearchParams({ redirectUrl: back });
  providers.append(link);
}

async function offer() {
  try {
    const { flows } = await ask();
    form.hidden = !flows.some(({ type }) => type === 'm.login.password');
    const other = flows.find(({ type }) => type === 'm.login.sso');
    const named = other?.identity_providers ?? [];
    for (const { id, name } of named) addProvider('Sign in with ' + name, id);
    if (other && named.length === 0) addProvider('Single sign-on');
    if (form.hidden && !other) show('Sign in with an app: this server has no login for browsers.', true);
  } catch (error) {
    show(error.message, true);
  }
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  const user = document.getElementById('username').value;
  const password = document.getElementById('password').value;
  signIn({ type: 'm.login.password', identifier: { type: 'm.id.user', user }, password });
});

const token = given.get('loginToken');
if (!token || !(await signIn({ type: 'm.login.token', token }))) await offer();
