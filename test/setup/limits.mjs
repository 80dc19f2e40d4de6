// The fast lane's runner has no time limit per test, so the globals get one, once per worker. It ends what hangs; nothing is
// measured by it, so it holds on a machine that has other work too.
import 'reflect-metadata';

const TEST_LIMIT_MS = 240_000;
const HOOK_LIMIT_MS = 240_000;

function limited(fn, limitMs) {
  if (!fn || fn.length > 0) return fn;
  return async function () {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`exceeded ${limitMs} ms`)), limitMs);
    });
    try {
      await Promise.race([fn.call(this), late]);
    } finally {
      clearTimeout(timer);
    }
  };
}

if (!globalThis.__limitsInstalled) {
  globalThis.__limitsInstalled = true;
  const wrap = (original) =>
    Object.assign((name, fn, limitMs) => original(name, limited(fn, limitMs ?? TEST_LIMIT_MS), limitMs), original);
  globalThis.it = globalThis.test = wrap(globalThis.it);
  for (const hook of ['beforeAll', 'afterAll', 'beforeEach', 'afterEach']) {
    const original = globalThis[hook];
    globalThis[hook] = (fn, limitMs) => original(limited(fn, limitMs ?? HOOK_LIMIT_MS));
  }
}
