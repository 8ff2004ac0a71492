"""The fork: cash on delivery, which is taken while the order is placed. It knows nothing of
Tillgate.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse
from oscar.apps.checkout import views
from oscar.apps.payment.exceptions import UnableToTakePayment
from oscar.core.loading import get_model


class PaymentMethodView(views.PaymentMethodView):  # type: ignore[misc]
    def get(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponse:
        return HttpResponse(
            '<form method="post"><button name="method" value="cash">Cash on '
            "delivery</button></form>",
        )

    def post(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponse:
        self.checkout_session.pay_by(request.POST["method"])
        answer: HttpResponse = self.get_success_response()
        return answer


class PaymentDetailsView(views.PaymentDetailsView):  # type: ignore[misc]
    def handle_payment(self, order_number: Any, total: Any, **options: Any) -> None:
        if self.checkout_session.payment_method() != "cash":
            raise UnableToTakePayment("Please choose how to pay")
        kind, _ = get_model("payment", "SourceType").objects.get_or_create(name="Cash")
        source = get_model("payment", "Source")(
            source_type=kind,
            currency=total.currency,
            amount_allocated=total.incl_tax,
        )
        self.add_payment_source(source)
        self.add_payment_event("Promised", total.incl_tax)

    def get_initial_order_status(self, basket: Any) -> str:
        return "Paid"
