/**
 * What modules cost where the server asks them, in microseconds: the check that there is none, and a gate that one or ten
 * modules of one callback each let pass. Best of several rounds. The event is a new one every time, as it is when sent.
 */
import { type ModuleEvent, NOT_SPAM } from '@rookery/module-api';
import { callbackContext, ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';

const rounds = 7;
const perRound = 20_000;
const context = callbackContext(undefined, { source: 'client' });

function dispatcherWith(modules: number): ModuleDispatcher {
  const dispatcher = new ModuleDispatcher();
  const registry = new ModuleRegistry(() => {});
  for (let i = 0; i < modules; i++) {
    registry.addModule(`module-${i}`);
    const policy = { onError: 'deny', timeLimitMs: undefined } as const;
    registry.add(`module-${i}`, policy, 'spamChecker', {
      checkEventForSpam: async ({ content }) => (content.body === 'spam' ? 'M_FORBIDDEN' : NOT_SPAM),
    });
  }
  dispatcher.install(registry.seal());
  return dispatcher;
}

const newEvent = (i: number): ModuleEvent => ({
  eventId: `$event${i}`,
  roomId: '!room:example.org',
  roomVersion: '12',
  type: 'm.room.message',
  stateKey: undefined,
  sender: '@alice:example.org',
  content: { msgtype: 'm.text', body: 'Hello there', 'm.mentions': {} },
  originServerTs: i,
  redacts: undefined,
  depth: i,
  prevEventIds: ['$a'],
  authEventIds: ['$b', '$c', '$d'],
  pdu: { content: { msgtype: 'm.text', body: 'Hello there' }, hashes: { sha256: 'x' }, signatures: {} },
});

async function measure(modules: number): Promise<number> {
  const dispatcher = dispatcherWith(modules);
  let best = Infinity;
  for (let round = 0; round < rounds; round++) {
    const startedAt = performance.now();
    for (let i = 0; i < perRound; i++) {
      if (dispatcher.has('checkEventForSpam')) {
        const verdict = await dispatcher.gate('checkEventForSpam', context, newEvent(i));
        if (!verdict.allowed) throw new Error('refused');
      }
    }
    best = Math.min(best, ((performance.now() - startedAt) * 1000) / perRound);
  }
  return best;
}

for (const modules of [0, 1, 10]) {
  console.log(`${String(modules).padStart(2)} modules: ${(await measure(modules)).toFixed(3)} µs per event`);
}
