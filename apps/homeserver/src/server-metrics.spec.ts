import { Metrics } from '@rookery/platform';
import { type EventBatch, RoomHooks } from '@rookery/rooms';
import type { Mailer, MailKind } from '@rookery/templates';
import { countEvents, countMails } from './server-metrics.js';

describe('the count of stored events', () => {
  const batch = (backfilled: boolean, ...events: (readonly [type: string, sender: string])[]): EventBatch =>
    ({
      backfilled,
      events: events.map(([type, sender]) => ({ event: { type, sender } })),
      extremities: () => ({ now: 1, left: 0 }),
    }) as unknown as EventBatch;

  it('tells types and origins, not what was fetched, and grows no further than its bound', async () => {
    const metrics = new Metrics('here.org');
    const hooks = new RoomHooks();
    countEvents(metrics, hooks, 'here.org');
    const [hook] = hooks.all;
    hook?.afterCommit?.(batch(false, ['m.room.message', '@a:here.org'], ['m.room.message', '@b:there.org']), undefined);
    hook?.afterCommit?.(batch(true, ['m.room.message', '@a:here.org']), undefined);
    for (let i = 0; i < 300; i++) hook?.afterCommit?.(batch(false, [`made.up.${i}`, '@a:here.org']), undefined);
    const { body } = await metrics.render();
    const lines = body.split('\n').filter((line) => line.startsWith('synapse_storage_events_persisted_events'));
    expect(lines).toContainEqual(expect.stringMatching(/^synapse_storage_events_persisted_events_total\{.*\} 302$/));
    for (const origin of ['local', 'remote']) {
      const line = lines.find(
        (one) => one.includes('type="m.room.message"') && one.includes(`origin_type="${origin}"`),
      );
      expect(line).toMatch(/ 1$/);
    }
    expect(lines.find((one) => one.includes('type="other"'))).toMatch(/ 101$/);
    expect(lines.length).toBeLessThan(210);
  });
});

it('mails are counted by what dashboards call their kinds', async () => {
  const metrics = new Metrics('here.org');
  let queued: (kind: MailKind) => void = () => {};
  countMails(metrics, { onQueued: (listener) => (queued = listener) } as Pick<Mailer, 'onQueued'> as Mailer);
  for (const kind of ['notif', 'notif', 'password_reset'] as const) queued(kind);
  const { body } = await metrics.render();
  const lines = body.split('\n').filter((line) => line.startsWith('synapse_emails_sent_total{'));
  expect(lines).toEqual([
    expect.stringMatching(/type="notification".* 2$/),
    expect.stringMatching(/type="password_reset".* 1$/),
  ]);
});
