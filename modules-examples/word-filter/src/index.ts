import { Codes, defineModule, type ModuleEvent, NOT_SPAM } from '@rookery/module-api';
import { parseConfig } from './config.js';

/** What clients show in place of a topic's plain text. */
function* blocks(topic: unknown): Iterable<string> {
  const parts = typeof topic === 'object' && topic !== null ? (topic as Record<string, unknown>)['m.text'] : undefined;
  if (!Array.isArray(parts)) return;
  for (const part of parts as readonly unknown[]) {
    const body = typeof part === 'object' && part !== null ? (part as Record<string, unknown>).body : undefined;
    if (typeof body === 'string') yield body;
  }
}

/** The texts of an event that people read. */
function* texts({ content }: ModuleEvent): Iterable<string> {
  const edited = content['m.new_content'];
  for (const source of [content, edited]) {
    if (typeof source !== 'object' || source === null) continue;
    const { body, formatted_body: formatted, topic, name } = source as Record<string, unknown>;
    for (const text of [body, formatted, topic, name]) if (typeof text === 'string') yield text;
    yield* blocks((source as Record<string, unknown>)['m.topic']);
  }
}

/** Refuses messages, room names and topics that hold one of the configured words. */
export default defineModule({
  name: 'word-filter',
  parseConfig,
  register(api, { pattern, message }) {
    const refused = api.metrics.counter('refused_total', 'Events refused by the word filter.');
    if (!pattern) return;
    api.registerSpamCheckerCallbacks({
      checkEventForSpam(event) {
        for (const text of texts(event)) {
          if (!pattern.test(text)) continue;
          refused.inc();
          return { errcode: Codes.FORBIDDEN, message };
        }
        return NOT_SPAM;
      },
    });
  },
});
