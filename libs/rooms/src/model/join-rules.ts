import { isJsonObject, isValidRoomId } from '@rookery/matrix-types';

const maxAllowed = 100;

/** The rooms named by a restricted join rule; what can be no room's id is left out. */
export function allowedRooms(content: Readonly<Record<string, unknown>>): string[] {
  const { allow } = content;
  if (!Array.isArray(allow)) return [];
  return allow.slice(0, maxAllowed).flatMap((entry: unknown) => {
    const { type, room_id: roomId } = isJsonObject(entry) ? entry : {};
    return type === 'm.room_membership' && typeof roomId === 'string' && isValidRoomId(roomId) ? [roomId] : [];
  });
}
