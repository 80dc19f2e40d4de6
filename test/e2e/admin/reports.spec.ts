import type { TestHomeserver, TestUser } from '@rookery/testing';
import { createRoom, databases, join, ok, outcome, say, startHomeserver } from '../rooms/rooms-client.js';
import { type EndpointRow, notRefused, type Operator, operatorOf } from './operator-world.js';

interface EventReport {
  readonly id: number;
  readonly received_ts: number;
  readonly room_id: string;
  readonly event_id: string;
  readonly user_id: string;
  readonly sender: string;
}

interface UserReport {
  readonly id: number;
  readonly received_ts: number;
  readonly target_user_id: string;
  readonly user_id: string;
}

interface ReportPage {
  readonly event_reports: readonly EventReport[];
  readonly total: number;
  readonly next_token?: number;
}

interface UserReportPage {
  readonly user_reports: readonly UserReport[];
  readonly total: number;
  readonly next_token?: number;
}

describe.each(databases)('reports in the admin API (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: Operator;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { rc_reports: { per_second: 1000, burst_count: 1000 } });
    root = await operatorOf(homeserver);
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  describe('about events', () => {
    let roomId: string;
    let other: string;
    let rude: string;
    const list = (query = ''): Promise<ReportPage> => root.ok<ReportPage>('GET', `/v1/event_reports${query}`);
    const reporters = (page: ReportPage): string[] => page.event_reports.map((report) => report.user_id);

    beforeAll(async () => {
      roomId = await createRoom(alice, { preset: 'public_chat', name: 'Bar', room_alias_name: 'bar' });
      await join(bob, roomId);
      other = await createRoom(bob, { preset: 'public_chat' });
      await join(alice, other);
      rude = await say(alice, roomId, 'something rude');
      const odd = await say(bob, other, 'something odd');
      const report = { reason: 'Rude', score: -100 };
      await ok(bob, 'POST', `/rooms/${roomId}/report/${rude}`, report);
      await ok(alice, 'POST', `/rooms/${other}/report/${odd}`, { reason: 'Odd' });
      await ok(alice, 'POST', `/rooms/${roomId}/report/${rude}`, {});
    });

    it('are listed, the newest first, with what is known of them', async () => {
      const { event_reports: reports, total } = await list();
      expect(total).toBe(3);
      expect(reporters({ event_reports: reports, total })).toEqual([alice.userId, alice.userId, bob.userId]);
      expect(reports[2]).toEqual({
        id: expect.any(Number) as number,
        received_ts: expect.any(Number) as number,
        room_id: roomId,
        event_id: rude,
        user_id: bob.userId,
        score: -100,
        reason: 'Rude',
        sender: alice.userId,
        canonical_alias: '#bar:rookery.test',
        name: 'Bar',
      });
      expect(reports[0]).toMatchObject({ reason: null, score: null });
      expect(reporters(await list('?dir=f'))).toEqual([bob.userId, alice.userId, alice.userId]);
    });

    it('reports come in pages', async () => {
      expect(await list('?limit=2')).toMatchObject({ total: 3, next_token: 2 });
      const rest = await list('?limit=2&from=2');
      expect(reporters(rest)).toEqual([bob.userId]);
      expect(rest).not.toHaveProperty('next_token');
    });

    it('are searched by reporter, room and sender', async () => {
      expect(reporters(await list('?user_id=ali'))).toEqual([alice.userId, alice.userId]);
      expect((await list(`?room_id=${encodeURIComponent(other.slice(0, 10))}`)).total).toBe(1);
      expect((await list(`?event_sender_user_id=${encodeURIComponent(bob.userId)}`)).total).toBe(1);
      expect((await list('?event_sender_user_id=bob')).total).toBe(0);
      expect((await list('?user_id=%25')).total).toBe(0);
    });

    it('are shown with their event, and deleted', async () => {
      const { event_reports: reports } = await list('?dir=f');
      const [first] = reports;
      const path = `/v1/event_reports/${first?.id ?? 0}`;
      const shown = await root.ok('GET', path);
      expect(shown).toMatchObject({ ...first });
      expect(shown['event_json']).toMatchObject({ sender: alice.userId, content: { body: 'something rude' } });
      expect(await root.ok('DELETE', path)).toEqual({});
      expect(outcome(await root.call('GET', path))).toBe('404 M_NOT_FOUND');
      expect(outcome(await root.call('DELETE', path))).toBe('404 M_NOT_FOUND');
      expect((await list()).total).toBe(2);
    });
  });

  describe('about users', () => {
    const list = (query = ''): Promise<UserReportPage> => root.ok<UserReportPage>('GET', `/v1/user_reports${query}`);

    beforeAll(async () => {
      await ok(alice, 'POST', `/users/${bob.userId}/report`, { reason: 'Too loud' });
      await ok(bob, 'POST', `/users/${alice.userId}/report`, { reason: 'Too quiet' });
    });

    it('are listed, searched, shown and deleted', async () => {
      const { user_reports: reports, total } = await list();
      expect(total).toBe(2);
      expect(reports[0]).toEqual({
        id: expect.any(Number) as number,
        received_ts: expect.any(Number) as number,
        target_user_id: alice.userId,
        user_id: bob.userId,
        reason: 'Too quiet',
      });
      expect((await list('?dir=f&limit=1')).user_reports).toEqual([reports[1]]);
      expect(await list('?limit=1')).toMatchObject({ next_token: 1 });
      expect((await list('?user_id=bob')).user_reports).toEqual([reports[0]]);
      expect((await list('?target_user_id=bob')).user_reports).toEqual([reports[1]]);
      const path = `/v1/user_reports/${reports[0]?.id ?? 0}`;
      expect(await root.ok('GET', path)).toEqual(reports[0]);
      expect(await root.ok('DELETE', path)).toEqual({});
      expect(outcome(await root.call('GET', path))).toBe('404 M_NOT_FOUND');
      expect(outcome(await root.call('DELETE', path))).toBe('404 M_NOT_FOUND');
      expect((await list()).total).toBe(1);
    });
  });

  it.each(
    ['event_reports', 'user_reports'].flatMap((what) =>
      ['?from=-1', '?limit=-1', '?dir=x', '/-1', '/one', '/1.5'].map((rest) => `/v1/${what}${rest}`),
    ),
  )('refuse %s', async (path) => expect(outcome(await root.call('GET', path))).toBe('400 M_INVALID_PARAM'));

  it('are for administrators only', async () => {
    const endpoints = ['event_reports', 'user_reports'].flatMap((what): EndpointRow[] => [
      ['GET', `/v1/${what}`],
      ['GET', `/v1/${what}/1`],
      ['DELETE', `/v1/${what}/1`],
    ]);
    expect(await notRefused(homeserver, alice, endpoints)).toEqual([]);
  });
});
