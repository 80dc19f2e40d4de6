import { readFile, writeFile } from 'node:fs/promises';
import { eventually } from '@rookery/testing';
import { rookery } from '../../support/operators.js';
import { databaseKinds, ServerProcess } from '../../support/server-process.js';
import { FakeService, pause, RegistrationFiles } from './support.js';

describe('an operator who adds application services', () => {
  const files = new RegistrationFiles();
  let server: ServerProcess;
  let path: string;

  beforeAll(async () => {
    path = files.write('irc', {});
    server = await ServerProcess.prepare('sqlite', { app_service_config_files: [path] });
  });
  afterAll(async () => {
    await server?.remove();
    files.remove();
  });

  it('hears what is wrong with a file, from the server and from the check, and starts once it is mended', async () => {
    const right = await readFile(path, 'utf8');
    await writeFile(path, right.replace('"@irc_.*"', '"@irc_(.*"').replace('sender_localpart: ircbot\n', ''));
    const expected = [
      `${path}: sender_localpart: is missing: write the part of a user id between @ and the colon`,
      `${path}:8: namespaces.users[0].regex: not a regular expression: missing closing )`,
    ];
    await expect(server.start()).rejects.toThrow('the server ended with 1');
    const check = await rookery('config', 'check', server.configFile);
    expect(check.code).toBe(1);
    for (const line of expected) {
      expect(server.output).toContain(line);
      expect(check.output).toContain(`error: ${line}`);
    }
    // One line each, and no stack.
    expect(server.output).not.toContain('    at ');
    await writeFile(path, right);
    expect((await rookery('config', 'check', server.configFile)).code).toBe(0);
    await server.start();
    expect(await server.stop()).toBe(0);
  });
});

describe.each(databaseKinds)('a server that is killed while it sends (%s)', (kind) => {
  const files = new RegistrationFiles();
  let service: FakeService;
  let server: ServerProcess;

  beforeAll(async () => {
    service = await FakeService.start();
    server = await ServerProcess.prepare(kind, {
      app_service_config_files: [files.write('irc', { url: service.url })],
    });
    await server.start();
  });
  afterAll(async () => {
    await server?.remove();
    await service?.down();
    files.remove();
  });

  const request = async (method: string, url: string, body?: object): Promise<Record<string, unknown>> => {
    const headers = { authorization: 'Bearer as-irc', 'content-type': 'application/json' };
    const response = await fetch(`${server.baseUrl}/_matrix/client/v3${url}`, {
      ...{ method, headers, signal: AbortSignal.timeout(60_000) },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const answer = (await response.json()) as Record<string, unknown>;
    if (response.status !== 200) throw new Error(`${url}: ${JSON.stringify(answer)}`);
    return answer;
  };

  it('leaves nothing out, and sends nothing twice under another id', async () => {
    const roomId = String((await request('POST', '/createRoom', {}))['room_id']);
    let next = 0;
    let isOver = false;
    // What was killed before it answered may be stored: it is said again until there is an answer.
    let isUnanswered = false;
    const talk = async (): Promise<void> => {
      while (!isOver || isUnanswered || next % 10 !== 0) {
        const body = { msgtype: 'm.text', body: `line ${next}` };
        try {
          await request('PUT', `/rooms/${roomId}/send/m.room.message/t${next}`, body);
          next++;
          isUnanswered = false;
        } catch {
          isUnanswered = true;
          await pause(50);
        }
      }
    };
    let delayMs = 0;
    service.onRequest = async ({ method }) => {
      if (method === 'PUT') await pause(delayMs);
      return undefined;
    };
    const talking = talk();
    for (const ms of [0, 80, 0]) {
      delayMs = ms;
      const before = next;
      await eventually(() => next >= before + 40, 60_000);
      await server.stop('SIGKILL');
      await server.start();
    }
    isOver = true;
    await talking;
    await eventually(() => service.texts.length >= next, 60_000);
    expect(service.texts).toEqual(Array.from({ length: next }, (_, n) => `line ${n}`));
  }, 240_000);
});
