import type { MessagePort } from 'node:worker_threads';
import { Peer } from './thread-peer.js';

it('gives a call at rest its own answer, whatever comes late for one that was given up', () => {
  const answers: unknown[] = [];
  const around = (_callId: number, _cause: number | undefined, work: () => void): void => work();
  const portTo = (deliver: (message: unknown) => void): MessagePort =>
    ({ postMessage: deliver }) as unknown as MessagePort;
  const echo = (word: unknown): unknown => {
    if (word === 'wrong') throw new Error('refused');
    return word;
  };
  const server = new Peer(
    portTo(() => {}),
    { named: () => echo, around, freezes: false, reply: (message) => answers.push(message) },
  );
  const late: unknown[] = [];
  let isSlow = true;
  const thread = new Peer(
    portTo((message) => (isSlow ? void late.push(message) : server.receive(message))),
    {
      named: () => undefined,
      around,
      freezes: true,
      answers: { port: portTo(() => {}), receive: () => answers.shift() },
    },
  );
  const wait = jest.spyOn(Atomics, 'wait').mockReturnValue('timed-out');
  try {
    for (const word of ['first', 'wrong'])
      expect(() => thread.callAtRest('echo', [word])).toThrow('The server did not answer');
  } finally {
    wait.mockRestore();
  }
  isSlow = false;
  for (const message of late) server.receive(message);
  expect(answers).toHaveLength(2);
  expect(thread.callAtRest('echo', ['third'])).toBe('third');
  expect(() => thread.callAtRest('echo', ['wrong'])).toThrow('refused');
  expect(thread.callAtRest('echo', ['fifth'])).toBe('fifth');
});
