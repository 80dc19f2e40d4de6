import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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

it('runs by a clock that stands until it is told', async () => {
  const clock = new FakeClock();
  expect(clock.nowMs()).toBe(clock.nowMs());
});
