import { type Infer, json } from '@rookery/http';

/** A text of a request that changes a membership. */
export const text = json.string({ maxLength: 4096 });
export const reason = json.optional('The reason; part of the event.', text);
export const reasonSchema = json.object({ reason });
export type ReasonBody = Infer<typeof reasonSchema>;

/** Largest request that changes a membership, bytes. */
export const bodyLimitBytes = 65_536;
