import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createTestHomeserver, eventually, RecordingLogger } from '@rookery/testing';

/** Answers each message, those of modules as well, at once or a moment later. */
const answering = (name: string, how: string): string => `
  import { defineModule } from '@rookery/module-api';
  export default defineModule({
    name: '${name}',
    register(api, config) {
      api.registerThirdPartyRulesCallbacks({
        async onNewEvent({ type, roomId, sender, content }) {
          if (type !== 'm.room.message' || content['org.example.quiet']) return;
          const send = (more) => api.createAndSendEventIntoRoom({ roomId, sender, type, content: { msgtype: 'm.text', body: '${name}', ...more } });
          ${how};
        },
      });
    },
  });`;

describe.each([
  ['sqlite', undefined],
  ['postgres', undefined],
  ['sqlite', 'thread'],
  ['postgres', 'thread'],
] as const)('modules that answer events with events (%s, isolate: %s)', (database, isolate) => {
  it('are stopped, and go on with others', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rookery-loops-'));
    const logger = new RecordingLogger();
    await writeFile(join(folder, 'ping.mjs'), answering('ping', `if (content.body !== 'ping') await send()`));
    await writeFile(
      join(folder, 'pong.mjs'),
      answering('pong', `if (content.body === 'ping') setTimeout(() => send().catch(() => {}), 1)`),
    );
    const server = await createTestHomeserver({
      ...{ database, logger },
      settings: {
        modules: ['ping', 'pong'].map((name) => ({
          module: join(folder, `${name}.mjs`),
          ...(isolate ? { isolate } : {}),
        })),
      },
    });
    try {
      const ann = await server.registerUser('ann');
      const roomId = encodeURIComponent(
        (await ann.request<{ room_id: string }>('POST', '/createRoom', {})).body.room_id,
      );
      const bodies = async (): Promise<string[]> => {
        const { body } = await ann.request<{ chunk: { type: string; content: { body: string } }[] }>(
          ...(['GET', `/rooms/${roomId}/messages?dir=b&limit=500`] as const),
        );
        return body.chunk.filter(({ type }) => type === 'm.room.message').map(({ content }) => content.body);
      };
      for (const [round, txn] of ['a', 'b'].entries()) {
        await ann.request('PUT', `/rooms/${roomId}/send/m.room.message/${txn}`, { msgtype: 'm.text', body: 'hello' });
        const stopped = 'A module answers events with events without end: it was stopped';
        await eventually(() => logger.lines.filter(({ message }) => message === stopped).length === round + 1);
        expect((await bodies()).length).toBe((round + 1) * 21);
      }
    } finally {
      await server.stop();
      await rm(folder, { recursive: true, force: true });
    }
  });
});
