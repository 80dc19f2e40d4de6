import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from './eventually.js';
import { TestFederation } from './test-federation.js';
import { createTestHomeserver } from './test-homeserver.js';
import { FakeClock } from './fake-clock.js';
import { startMailSink } from './mail-sink.js';

it('has administrators, mails, and restarts with other settings', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-kit-'));
  const sink = await startMailSink();
  writeFileSync(
    join(folder, 'mailer.mjs'),
    `import { defineModule } from '@rookery/module-api';
    export default defineModule({ name: 'mailer', parseConfig: (raw) => raw, register(api, { subject }) {
      api.registerWebResource('/_synapse/client/mailer', async () => {
        await api.sendMail('ann@example.org', subject, '<p>Ä link: https://a.example/?token=1&x=' + 'y'.repeat(100) + '</p>', 'ä');
        return new Response('sent');
      });
    } });`,
  );
  const settings = (subject: string): Record<string, unknown> => ({
    email: sink.settings,
    modules: [{ module: './mailer.mjs', config: { subject } }],
  });
  const homeserver = await createTestHomeserver({ configDir: folder, settings: settings('first') });
  try {
    const admin = await homeserver.registerAdministrator('root');
    expect((await admin.request('GET', '/_synapse/admin/v1/modules')).status).toBe(200);
    const ann = await homeserver.registerUser('ann');
    expect((await ann.request('GET', '/_synapse/admin/v1/modules')).status).toBe(403);

    await homeserver.request('GET', '/_synapse/client/mailer');
    const mail = await sink.next('ann@example.org');
    expect(mail.text).toContain('Subject: first');
    expect(mail.text).toContain(`Ä link: https://a.example/?token=1&x=${'y'.repeat(100)}`);

    await homeserver.restart(settings('second'));
    expect((await ann.request('GET', '/account/whoami')).status).toBe(200);
    await homeserver.request('GET', '/_synapse/client/mailer');
    expect((await sink.next('ann@example.org')).text).toContain('Subject: second');
    // What was set stays.
    await homeserver.restart();
    await homeserver.request('GET', '/_synapse/client/mailer');
    expect((await sink.next('ann@example.org')).text).toContain('Subject: second');
  } finally {
    await homeserver.stop();
    await sink.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

it('ends a mail server to which somebody is connected still', async () => {
  const sink = await startMailSink();
  const client = connect(sink.settings.smtp_port, sink.settings.smtp_host);
  await once(client, 'data');
  let hasEnded = false;
  const ending = sink.stop().then(() => (hasEnded = true));
  await eventually(() => hasEnded, 15_000);
  await ending;
  client.destroy();
});

it('runs by a clock that stands until it is told', async () => {
  const clock = new FakeClock();
  expect(clock.nowMs()).toBe(clock.nowMs());
});

it('has a second server, which finds and trusts the first', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-kit-'));
  writeFileSync(
    join(folder, 'judge.mjs'),
    `import { defineModule } from '@rookery/module-api';
    export default defineModule({ name: 'judge', register(api) {
      api.registerSpamCheckerCallbacks({ checkEventForSpam: ({ sender, content }) =>
        sender.endsWith(':two.test') && content.body === 'spam' ? 'M_FORBIDDEN' : 'NOT_SPAM' });
    } });`,
  );
  const federation = await TestFederation.create();
  try {
    const settings = { modules: [{ module: './judge.mjs' }] };
    const one = await federation.homeserver('one.test', { configDir: folder, settings });
    const two = await federation.homeserver('two.test');
    const alice = await one.registerUser('alice');
    const bob = await two.registerUser('bob');
    expect([alice.userId, bob.userId]).toEqual(['@alice:one.test', '@bob:two.test']);
    const { body: room } = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    const roomId = encodeURIComponent(room.room_id);
    expect((await bob.request('POST', `/join/${roomId}?via=one.test`, {})).status).toBe(200);
    for (const body of ['spam', 'hello'])
      await bob.request('PUT', `/rooms/${roomId}/send/m.room.message/${body}`, { msgtype: 'm.text', body });
    interface Page {
      readonly chunk: readonly { readonly content: { readonly body?: string } }[];
    }
    const said = await eventually(async () => {
      const { body } = await alice.request<Page>('GET', `/rooms/${roomId}/messages?dir=b`);
      const texts = body.chunk.map(({ content }) => content.body);
      return texts.includes('hello') && texts;
    });
    expect(said).not.toContain('spam');
  } finally {
    await federation.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
