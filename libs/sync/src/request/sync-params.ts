import { param } from '@rookery/http';

/** Longest wait that a client gets, whatever it asks for. */
const maxTimeoutMs = 10 * 60 * 1000;

/** `timeout` of whatever waits for news. */
export const timeout = param.integer('How long to wait for news, milliseconds.', {
  min: 0,
  max: maxTimeoutMs,
  clamp: true,
  otherwise: 0,
});

/** `set_presence` of a sync. */
export const setPresence = param.choice(
  'What the user is shown as while this device syncs.',
  ['offline', 'online', 'unavailable'],
  { otherwise: 'online' },
);
