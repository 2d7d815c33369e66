"""An OpenFlow 1.3 controller: it leads the home addresses of vehicles to the roadside unit that serves them."""
