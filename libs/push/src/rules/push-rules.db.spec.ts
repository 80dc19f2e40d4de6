import { defaultRuleset } from '@rookery/push-rules';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { DeactivationService } from '@rookery/users';
import { PushRulesService } from './push-rules.service.js';

interface Rule {
  readonly rule_id: string;
  readonly enabled: boolean;
  readonly default: boolean;
  readonly actions: unknown[];
}
type Rules = Record<'override' | 'content' | 'room' | 'sender' | 'underride', Rule[]>;

describe.each(['sqlite', 'postgres'] as const)('push rules (%s)', (database) => {
  let server: TestHomeserver;
  let user: TestUser;
  let count = 0;

  beforeAll(async () => {
    server = await createTestHomeserver({ database });
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    user = await server.registerUser(`user${count++}`);
  });

  const get = async (path = ''): Promise<unknown> => {
    const { status, body } = await user.request('GET', `/pushrules/${path}`);
    expect(status).toBe(200);
    return body;
  };
  const rules = async (): Promise<Rules> => ((await get()) as { global: Rules }).global;
  const ids = async (kind: keyof Rules): Promise<string[]> => (await rules())[kind].map((rule) => rule.rule_id);
  const put = async (path: string, body: object): Promise<[number, unknown]> => {
    const answer = await user.request('PUT', `/pushrules/global/${path}`, body);
    return [answer.status, answer.body['errcode']];
  };
  const ok = [200, undefined];

  it('begins with the rules of the specification, the master switch off and on top', async () => {
    const found = await rules();
    expect(found.override[0]).toMatchObject({ rule_id: '.m.rule.master', enabled: false, default: true });
    expect(found.underride.map((rule) => rule.rule_id)).toContain('.m.rule.message');
    expect(await get('global/')).toEqual(found);
    expect(await get('global/override/.m.rule.master')).toEqual(found.override[0]);
  });

  it('puts new rules above, before or after others, and keeps the place of one that changes', async () => {
    const rule = { conditions: [], actions: ['notify'] };
    expect(await put('override/a', rule)).toEqual(ok);
    expect(await put('override/b', rule)).toEqual(ok);
    expect(await put('override/c?after=b', rule)).toEqual(ok);
    expect(await put('override/d?before=a', rule)).toEqual(ok);
    expect((await ids('override')).slice(0, 5)).toEqual(['.m.rule.master', 'b', 'c', 'd', 'a']);
    expect(await put('override/c', { ...rule, actions: [] })).toEqual(ok);
    expect((await ids('override')).slice(0, 5)).toEqual(['.m.rule.master', 'b', 'c', 'd', 'a']);
    expect(await put('override/a?before=b', rule)).toEqual(ok);
    await server.restart();
    expect((await ids('override')).slice(0, 5)).toEqual(['.m.rule.master', 'a', 'b', 'c', 'd']);
    // As the specification has it: what is wrong is the request, not the rule that it is for.
    for (const place of ['before=nothing', 'after=nothing', 'before=.m.rule.master', 'after=.m.rule.suppress_notices'])
      expect(await put(`override/e?${place}`, rule)).toEqual([400, 'M_UNKNOWN']);
    expect((await ids('override')).slice(0, 5)).toEqual(['.m.rule.master', 'a', 'b', 'c', 'd']);
  });

  it('deletes rules of users, not those of the server', async () => {
    expect(await put('content/x', { pattern: 'x', actions: [] })).toEqual(ok);
    expect(await put('content/x/enabled', { enabled: false })).toEqual(ok);
    expect((await user.request('DELETE', '/pushrules/global/content/x')).status).toBe(200);
    expect((await user.request('DELETE', '/pushrules/global/content/x')).status).toBe(404);
    expect((await user.request('DELETE', '/pushrules/global/override/.m.rule.master')).status).toBe(404);
    expect(await put('content/x', { pattern: 'x', actions: [] })).toEqual(ok);
    expect(await get('global/content/x')).toMatchObject({ enabled: true, pattern: 'x', default: false });
  });

  it('switches rules and changes their actions', async () => {
    const path = 'underride/.m.rule.message';
    expect(await put(`${path}/enabled`, { enabled: false })).toEqual(ok);
    expect(await get(`global/${path}/enabled`)).toEqual({ enabled: false });
    const actions = ['notify', { set_tweak: 'sound', value: 'ping' }];
    expect(await put(`${path}/actions`, { actions })).toEqual(ok);
    expect(await get(`global/${path}/actions`)).toEqual({ actions });
    expect(await get(`global/${path}`)).toMatchObject({ enabled: false, actions, default: true });
    expect(await put('room/!x:y/enabled', { enabled: true })).toEqual([404, 'M_NOT_FOUND']);
    expect(await put(`${path}/actions`, { actions: 'x' })).toEqual([400, 'M_BAD_JSON']);
  });

  it.each([
    ['an unknown kind', 'other/x', { actions: [] }, [400, 'M_UNRECOGNIZED']],
    ['a name of the server', 'override/.x', { conditions: [], actions: [] }, [400, 'M_INVALID_PARAM']],
    ['a pattern that is none', 'content/x', { pattern: 1, actions: [] }, [400, 'M_INVALID_PARAM']],
    ['no actions', 'override/x', { conditions: [] }, [400, 'M_INVALID_PARAM']],
  ])('refuses %s', async (_, path, body, expected) => {
    expect(await put(path, body)).toEqual(expected);
  });

  it('tells syncing clients of a change, once', async () => {
    interface Sync {
      readonly next_batch: string;
      readonly account_data?: {
        readonly events: readonly { readonly type: string; readonly content: { global: Rules } }[];
      };
    }
    const sync = async (since?: string): Promise<[string, Rules | undefined]> => {
      const { body } = await user.request<Sync>('GET', `/sync?timeout=0${since ? `&since=${since}` : ''}`);
      const event = body.account_data?.events.find(({ type }) => type === 'm.push_rules');
      return [body.next_batch, event?.content.global];
    };
    const [first, initial] = await sync();
    expect(initial?.content).toEqual([
      expect.objectContaining({ rule_id: '.m.rule.contains_user_name', default: true }),
    ]);
    await put('content/word', { pattern: 'word', actions: ['notify'] });
    const [second, changed] = await sync(first);
    expect(changed?.content).toMatchObject([
      { rule_id: 'word', pattern: 'word' },
      { rule_id: '.m.rule.contains_user_name' },
    ]);
    expect((await sync(second))[1]).toBeUndefined();
  });

  it('forgets rules with the account, those of the server that were changed too', async () => {
    expect(await put('content/word', { pattern: 'word', actions: ['notify'] })).toEqual(ok);
    expect(await put('override/.m.rule.suppress_notices/actions', { actions: ['notify'] })).toEqual(ok);
    expect(await put('underride/.m.rule.message/enabled', { enabled: false })).toEqual(ok);
    const accounts = server.server.service(DeactivationService);
    await accounts.deactivate(user.userId, false, true, {});
    await accounts.reactivate(user.userId, {});
    const service = server.server.service(PushRulesService);
    expect(await service.ruleset(user.userId)).toEqual(defaultRuleset(user.userId, service.features));
    const untouched = await service.compiled([user.userId, '@nobody:rookery.test']);
    expect(untouched.get(user.userId)?.unnamed).toBe(untouched.get('@nobody:rookery.test')?.unnamed);
  });

  it('takes rules about a room along into the one that replaces it, once', async () => {
    const { body: made } = await user.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    const old = made.room_id;
    const isHere = [{ kind: 'event_match', key: 'room_id', pattern: old }];
    const named = [...isHere, { kind: 'event_match', key: 'content.body', pattern: 'lunch' }];
    const elsewhere = [{ kind: 'event_match', key: 'room_id', pattern: '!other:example.org' }];
    for (const [path, rule] of [
      [`room/${old}`, { actions: ['dont_notify'] }],
      [`override/elsewhere`, { conditions: elsewhere, actions: [] }],
      [`override/lunch`, { conditions: named, actions: ['notify'] }],
      [`override/off`, { conditions: isHere, actions: [] }],
      [`override/${old}`, { conditions: isHere, actions: [] }],
    ] as const) {
      expect(await put(path, rule)).toEqual(ok);
    }
    expect(await put('override/off/enabled', { enabled: false })).toEqual(ok);

    const { body } = await user.request<{ replacement_room: string }>('POST', `/rooms/${old}/upgrade`, {
      new_version: '12',
    });
    const room = body.replacement_room;
    const own = async (kind: keyof Rules): Promise<Rule[]> => (await rules())[kind].filter((rule) => !rule.default);
    await eventually(async () => (await own('override')).length === 6);
    const [muted, mutedThere, off, lunch, lunchThere, other] = await own('override');
    const there = { kind: 'event_match', key: 'room_id', pattern: room };
    expect([muted, off, other]).toMatchObject([{ rule_id: old }, { rule_id: 'off' }, { rule_id: 'elsewhere' }]);
    expect(mutedThere).toMatchObject({ rule_id: room, conditions: [there], actions: [], enabled: true });
    expect(lunch).toMatchObject({ rule_id: 'lunch', conditions: named });
    expect(lunchThere).toMatchObject({
      rule_id: `lunch ${room}`,
      conditions: [there, named[1]],
      actions: ['notify'],
    });
    expect(await own('room')).toMatchObject([
      { rule_id: old },
      { rule_id: room, actions: (await own('room'))[0]!.actions },
    ]);
  });
});
