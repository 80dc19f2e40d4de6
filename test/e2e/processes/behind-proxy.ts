import type { TestHomeserver } from '@rookery/testing';

/**
 * Whether processes behind a proxy are one server to six users who hear each other through it, and stay so when the last of the
 * processes is gone.
 * @param port of the proxy, on 127.0.0.1
 */
export async function expectOneServer(homeserver: TestHomeserver, port: number): Promise<void> {
  const users = await Promise.all(Array.from({ length: 6 }, (_, n) => homeserver.registerUser(`user${n}`)));
  const ask = async (n: number, method: string, path: string, body?: object): Promise<Record<string, unknown>> => {
    const response = await fetch(`http://127.0.0.1:${port}/_matrix/client/v3${path}`, {
      method,
      headers: { authorization: `Bearer ${users[n]!.accessToken}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
    expect({ path, status: response.status }).toEqual({ path, status: 200 });
    return (await response.json()) as Record<string, unknown>;
  };
  const roomId = String((await ask(0, 'POST', '/createRoom', { preset: 'public_chat' }))['room_id']);
  for (const n of [1, 2, 3, 4, 5]) await ask(n, 'POST', `/join/${encodeURIComponent(roomId)}`, {});
  /** The first answer with news of the room: somebody's presence may come before. */
  const waitFor = async (n: number, from: string): Promise<Record<string, unknown>> => {
    for (let since = from; ;) {
      const answer = await ask(n, 'GET', `/sync?timeout=30000&since=${since}`);
      since = String(answer['next_batch']);
      if (answer['rooms'] !== undefined) return answer;
    }
  };
  const hears = async (text: string, sender: number): Promise<void> => {
    const since = await Promise.all(users.map(async (_, n) => String((await ask(n, 'GET', '/sync'))['next_batch'])));
    const waits = users.map((_, n) => waitFor(n, since[n]!));
    const path = `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/${text}`;
    await ask(sender, 'PUT', path, { msgtype: 'm.text', body: text });
    for (const answer of await Promise.all(waits)) expect(JSON.stringify(answer)).toContain(text);
  };
  for (const n of users.keys()) await hears(`message${n}`, n);
  await homeserver.servers.at(-1)!.stop();
  for (const n of users.keys()) await hears(`later${n}`, n);
}
