import {
  type CallbackContext,
  ConfigError,
  type ModuleApi,
  type ModuleEvent,
  type ModuleEventDraft,
  type ModuleRequester,
  type RoomStateView,
  type ThirdPartyRulesCallbacks,
} from '@rookery/module-api';
import encryptionPolicy from '../src/index.js';

const context: CallbackContext = { source: 'client', isAdmin: false, duringRoomCreation: false };
const requester = { userId: '@a:x' } as ModuleRequester;

function load(config?: object): ThirdPartyRulesCallbacks {
  let callbacks: ThirdPartyRulesCallbacks = {};
  const api = {
    registerThirdPartyRulesCallbacks: (given: ThirdPartyRulesCallbacks) => void (callbacks = given),
  } as unknown as ModuleApi;
  void encryptionPolicy.register(api, encryptionPolicy.parseConfig(config));
  return callbacks;
}

const create = (config: object, body: Record<string, unknown>): unknown =>
  load(config).onCreateRoom?.(requester, body, false, context);

/** The state of a room, by type; every read is noted. */
function room(contents: Record<string, Record<string, unknown>>): RoomStateView & { reads: string[] } {
  const reads: string[] = [];
  return {
    reads,
    async get(type) {
      reads.push(type);
      const content = contents[type];
      return content && ({ type, content } as unknown as ModuleEvent);
    },
    ofType: async () => [],
    all: async () => [],
  };
}
const draft = (type: string, stateKey?: string, eventId?: string): ModuleEventDraft =>
  ({ type, stateKey, eventId, content: {} }) as unknown as ModuleEventDraft;
const encrypted = { 'm.room.encryption': { algorithm: 'm.megolm.v1.aes-sha2' } };

describe('a new room', () => {
  const joinRule = (rule: string): object => ({ type: 'm.room.join_rules', content: { join_rule: rule } });
  const added = [{ type: 'm.room.encryption', state_key: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } }];

  it.each([
    ['private', {}, added],
    ['private', { preset: 'private_chat', visibility: 'public' }, added],
    ['private', { preset: 'public_chat' }, undefined],
    ['private', { visibility: 'public' }, undefined],
    ['private', { initial_state: [joinRule('public')] }, undefined],
    ['private', { preset: 'public_chat', initial_state: [joinRule('invite')] }, [joinRule('invite'), ...added]],
    [
      'private',
      { initial_state: [{ ...joinRule('public'), state_key: 'x' }] },
      [{ ...joinRule('public'), state_key: 'x' }, ...added],
    ],
    ['all', { preset: 'public_chat' }, added],
    ['none', {}, undefined],
  ])('with new_rooms: %s and %j', (newRooms, body, state) => {
    const result = create({ new_rooms: newRooms }, body);
    expect(result).toEqual(state === undefined ? undefined : { ...body, initial_state: state });
  });

  it('keeps the state it came with, and encryption that was asked for', () => {
    const topic = { type: 'm.room.topic', content: { topic: 't' } };
    expect(create({}, { initial_state: [topic] })).toEqual({ initial_state: [topic, ...added] });
    const own = { type: 'm.room.encryption', content: { algorithm: 'own' } };
    expect(create({}, { initial_state: [own] })).toBeUndefined();
    for (const none of [
      { ...own, state_key: 'x' },
      { ...own, content: {} },
      { type: own.type },
      { ...own, content: null },
    ])
      expect(create({}, { initial_state: [none] })).toEqual({ initial_state: [none, ...added] });
    expect(create({}, { initial_state: 'rubbish' })).toEqual({ initial_state: added });
  });
});

describe('an event', () => {
  it('that is plain is refused in an encrypted room only', async () => {
    const { checkEventAllowed } = load();
    expect(await checkEventAllowed?.(draft('m.room.message'), room(encrypted), context)).toMatchObject({
      allowed: false,
    });
    expect(await checkEventAllowed?.(draft('m.room.message'), room({}), context)).toBe(true);
    expect(await checkEventAllowed?.(draft('m.room.encrypted'), room(encrypted), context)).toBe(true);
    expect(await checkEventAllowed?.(draft('m.reaction'), room(encrypted), context)).toBe(true);
    expect(
      await load({ refuse_plain: false }).checkEventAllowed?.(draft('m.room.message'), room(encrypted), context),
    ).toBe(true);
  });

  it('of another server passes, and costs nothing', async () => {
    const state = room(encrypted);
    expect(await load().checkEventAllowed?.(draft('m.room.message', undefined, '$e'), state, context)).toBe(true);
    expect(state.reads).toEqual([]);
  });

  it('that encrypts a public room is refused where the settings say so', async () => {
    const open = room({ 'm.room.join_rules': { join_rule: 'public' } });
    const closed = room({ 'm.room.join_rules': { join_rule: 'invite' } });
    const strict = load({ forbid_in_public: true });
    expect(await strict.checkEventAllowed?.(draft('m.room.encryption', ''), open, context)).toMatchObject({
      allowed: false,
    });
    expect(await strict.checkEventAllowed?.(draft('m.room.encryption', ''), closed, context)).toBe(true);
    expect(await load().checkEventAllowed?.(draft('m.room.encryption', ''), open, context)).toBe(true);
  });

  it('that opens an encrypted room to everybody is refused where the settings say so', async () => {
    const rules = (rule: string): ModuleEventDraft => ({
      ...draft('m.room.join_rules', ''),
      content: { join_rule: rule },
    });
    const strict = load({ forbid_in_public: true });
    expect(await strict.checkEventAllowed?.(rules('public'), room(encrypted), context)).toMatchObject({
      allowed: false,
    });
    expect(await strict.checkEventAllowed?.(rules('knock'), room(encrypted), context)).toBe(true);
    expect(await strict.checkEventAllowed?.(rules('public'), room({}), context)).toBe(true);
    expect(await load().checkEventAllowed?.(rules('public'), room(encrypted), context)).toBe(true);
  });
});

it.each([
  [[], []],
  [{ new_rooms: 'some' }, ['new_rooms']],
  [{ forbid_in_public: 1 }, ['forbid_in_public']],
  [{ forbid_in_public: true, new_rooms: 'all' }, ['forbid_in_public']],
  [{ refuse_plain: 'no' }, ['refuse_plain']],
  [{ other: 1 }, ['other']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    encryptionPolicy.parseConfig(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
