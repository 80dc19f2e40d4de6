import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { EphemeralModule } from './ephemeral.module.js';
import { PresenceController } from './presence/presence.controller.js';
import { ReceiptController } from './receipts/receipt.controller.js';
import { TypingController } from './typing/typing.controller.js';

/** The client API of typing, receipts and presence. */
@Module({
  imports: [UsersModule, EphemeralModule],
  controllers: [TypingController, ReceiptController, PresenceController],
})
export class EphemeralHttpModule {}
