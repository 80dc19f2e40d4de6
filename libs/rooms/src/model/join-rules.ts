import { isJsonObject } from '@rookery/matrix-types';

const maxAllowed = 100;

/** The rooms named by a restricted join rule. */
export function allowedRooms(content: Readonly<Record<string, unknown>>): string[] {
  const { allow } = content;
  if (!Array.isArray(allow)) return [];
  return allow
    .slice(0, maxAllowed)
    .flatMap((entry) =>
      isJsonObject(entry) && entry['type'] === 'm.room_membership' && typeof entry['room_id'] === 'string'
        ? [entry['room_id']]
        : [],
    );
}
