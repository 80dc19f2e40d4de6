import {
  type CallbackContext,
  ConfigError,
  type ModuleApi,
  type ModuleEvent,
  NOT_SPAM,
  type SpamCheckerCallbacks,
} from '@rookery/module-api';
import wordFilter from '../src/index.js';

const context: CallbackContext = { source: 'client', isAdmin: false, duringRoomCreation: false };

/** Registers the module with an API that only takes callbacks. */
function load(config: unknown): { callbacks: SpamCheckerCallbacks | undefined; refused: () => number } {
  let callbacks: SpamCheckerCallbacks | undefined;
  let refused = 0;
  const api = {
    registerSpamCheckerCallbacks: (given: SpamCheckerCallbacks) => void (callbacks = given),
    metrics: { counter: () => ({ inc: () => void (refused += 1) }) },
  } as unknown as ModuleApi;
  void wordFilter.register(api, wordFilter.parseConfig(config));
  return { callbacks, refused: () => refused };
}

const event = (content: Record<string, unknown>): ModuleEvent => ({ type: 'm.room.message', content }) as ModuleEvent;
const check = (words: string[], content: Record<string, unknown>): unknown =>
  load({ words, message: 'no' }).callbacks?.checkEventForSpam?.(event(content), context);
const refusal = { errcode: 'M_FORBIDDEN', message: 'no' };

it.each([
  [{ body: 'Welcome to the CASINO!' }],
  [{ body: 'casino' }],
  [{ body: 'harmless', formatted_body: '<b>casino</b>' }],
  [{ body: '* harmless', 'm.new_content': { body: 'casino' } }],
  [{ topic: 'All about casino' }],
  [{ topic: 'harmless', 'm.topic': { 'm.text': [{ mimetype: 'text/html', body: 'x' }, { body: 'a casino' }] } }],
  [{ body: 'ask for cheap pills.' }],
  [{ body: 'что-то запрет тут' }],
  [{ body: 'price: a.b*c' }],
])('refuses %j', (content) => {
  expect(check(['casino', 'cheap pills', 'ЗАПРЕТ', 'a.b*c'], content)).toEqual(refusal);
});

it.each([
  [{ body: 'occasional' }],
  [{ body: 'casinos' }],
  [{ body: 'axbyc' }],
  [{ body: 42 }],
  [{}],
  [{ 'm.new_content': null }],
  [{ 'm.topic': { 'm.text': [null, 'casino', { body: 1 }] } }],
  [{ 'm.topic': { 'm.text': 'casino' } }],
  [{ 'm.topic': null }],
])('lets %j pass', (content) => {
  expect(check(['casino', 'a.b*c'], content)).toBe(NOT_SPAM);
});

it('counts what it refused', () => {
  const { callbacks, refused } = load({ words: ['casino'] });
  void callbacks?.checkEventForSpam?.(event({ body: 'casino' }), context);
  void callbacks?.checkEventForSpam?.(event({ body: 'hello' }), context);
  expect(refused()).toBe(1);
});

it('asks for nothing when there are no words', () => {
  expect(load({ words: [] }).callbacks).toBeUndefined();
});

it.each([
  [undefined, []],
  [[], []],
  [{}, ['words']],
  [{ words: 'casino' }, ['words']],
  [{ words: ['fine', 7] }, ['words', 1]],
  [{ words: [' '] }, ['words', 0]],
  [{ words: [], message: 7 }, ['message']],
  [{ words: [], word: [] }, ['word']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    wordFilter.parseConfig(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
